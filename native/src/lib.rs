//! Batches of messages to features, without the interpreter: the decoder that `sfd_stream/wire/compiled.py` loads.
//!
//! It takes what is common and leaves the rest, good or bad, to the reference in Python, message by message. What it
//! takes, it makes the same of, to the last bit. The interface is that of C, so one library serves every Python.

mod avro;
mod flatten;
mod json;
mod msgpack;
mod murmur;
mod plan;
mod protobuf;
mod value;

use flatten::{Flattener, Limits, Rows};
use plan::Plan;
use std::panic::catch_unwind;
use value::{Left, Result, Value};

/// Counted up with every change of the interface.
const INTERFACE: u32 = 2;

/// What a batch holds. The arrays belong to `rows` and are valid until `sfd_free(rows)`.
#[repr(C)]
pub struct Batch {
    rows: *mut Rows,
    rows_of_message: *const i64,
    lengths: *const i64,
    row_count: u64,
    hashes: *const i32,
    values: *const f64,
    entry_count: u64,
    name_ends: *const u64,
    names: *const u8,
    names_len: u64,
}

/// Messages one after the other, and where each ends.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Messages {
    data: *const u8,
    ends: *const i64,
    count: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Wanted {
    limits: Limits,
    seed: u32,
    keep_names: u32,
    /// Features are the numbers of columns below this one; 0 where they are names, which are hashed.
    columns_end: u64,
}

#[no_mangle]
pub extern "C" fn sfd_interface() -> u32 {
    INTERFACE
}

/// The rules of `input.features`, from their JSON text; null if it is not understood.
///
/// # Safety
/// `text` must have `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn sfd_plan(text: *const u8, len: u64) -> *mut Plan {
    let text = std::slice::from_raw_parts(text, len as usize);
    match catch_unwind(|| Plan::parse(text)) {
        Ok(Ok(plan)) => Box::into_raw(Box::new(plan)),
        _ => std::ptr::null_mut(),
    }
}

/// How records of a format are read: `json`, or `avro` or `protobuf` with the description of a schema; null if it is not
/// understood.
///
/// # Safety
/// `name` and `text` must have these many bytes.
#[no_mangle]
pub unsafe extern "C" fn sfd_schema(name: *const u8, name_len: u64, text: *const u8, len: u64) -> *mut Schema {
    let name = std::slice::from_raw_parts(name, name_len as usize);
    let text = std::slice::from_raw_parts(text, len as usize);
    match catch_unwind(|| Schema::parse(name, text)) {
        Ok(Ok(schema)) => Box::into_raw(Box::new(schema)),
        _ => std::ptr::null_mut(),
    }
}

/// # Safety
/// `schema` must come from `sfd_schema`, and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sfd_free_schema(schema: *mut Schema) {
    drop(Box::from_raw(schema));
}

/// # Safety
/// `plan` must come from `sfd_plan`, and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sfd_free_plan(plan: *mut Plan) {
    drop(Box::from_raw(plan));
}

/// Decodes records by a plan and a schema, or rows in msgpack if both are null. Returns 0, or 1 if nothing could be done.
///
/// # Safety
/// `messages` must hold `count` ends, ascending, below the size of its data; `batch` is freed by `sfd_free`.
#[no_mangle]
pub unsafe extern "C" fn sfd_decode(
    plan: *const Plan,
    schema: *const Schema,
    messages: *const Messages,
    wanted: *const Wanted,
    batch: *mut Batch,
) -> u32 {
    let (messages, wanted) = (*messages, *wanted);
    let ends = std::slice::from_raw_parts(messages.ends, messages.count as usize);
    let size = ends.last().map_or(0, |end| *end as usize);
    let data = std::slice::from_raw_parts(messages.data, size);
    let sources = plan.as_ref().zip(schema.as_ref());
    let rows = match catch_unwind(|| decode(sources, data, ends, &wanted)) {
        Ok(rows) => Box::new(rows),
        Err(_) => return 1,
    };
    *batch = Batch {
        rows_of_message: rows.rows_of_message.as_ptr(),
        lengths: rows.lengths.as_ptr(),
        row_count: rows.lengths.len() as u64,
        hashes: rows.hashes.as_ptr(),
        values: rows.values.as_ptr(),
        entry_count: rows.values.len() as u64,
        name_ends: rows.name_ends.as_ptr(),
        names: rows.names.as_ptr(),
        names_len: if rows.keep_names { rows.names.len() as u64 } else { 0 },
        rows: Box::into_raw(rows),
    };
    0
}

/// # Safety
/// `rows` must be of a batch that `sfd_decode` filled, and is freed once.
#[no_mangle]
pub unsafe extern "C" fn sfd_free(rows: *mut Rows) {
    drop(Box::from_raw(rows));
}

/// How the records of a format are read.
pub enum Schema {
    Json,
    Avro(avro::Schema),
    Protobuf(protobuf::Schema),
}

impl Schema {
    fn parse(name: &[u8], text: &[u8]) -> Result<Schema> {
        match name {
            b"json" => Ok(Schema::Json),
            b"avro" => avro::Schema::parse(&json::read_json(text)?).map(Schema::Avro),
            b"protobuf" => protobuf::Schema::parse(&json::read_json(text)?).map(Schema::Protobuf),
            _ => Err(Left),
        }
    }

    fn read<'a>(&'a self, message: &'a [u8]) -> Result<Value<'a>> {
        match self {
            Schema::Json => json::read_json(message),
            Schema::Avro(schema) => avro::read_avro(schema, message),
            Schema::Protobuf(schema) => protobuf::read_protobuf(schema, message),
        }
    }
}

fn decode(sources: Option<(&Plan, &Schema)>, data: &[u8], ends: &[i64], wanted: &Wanted) -> Rows {
    let limits = wanted.limits;
    let (seed, keep_names) = (wanted.seed, wanted.keep_names != 0);
    let mut out = Rows { seed, keep_names, columns_end: wanted.columns_end, ..Rows::default() };
    let mut records = sources.map(|(plan, schema)| (Flattener::new(plan, limits), schema));
    let mut start = 0;
    for end in ends {
        let message = &data[start..*end as usize];
        start = *end as usize;
        out.message(|out| match &mut records {
            _ if message.len() as u64 > limits.message_bytes_max => Err(Left),
            Some((flattener, schema)) => flattener.add(&schema.read(message)?, out),
            None => msgpack::add_rows(message, &limits, out),
        });
    }
    out
}
