// Rows for sfd-stream from Node: one JSON object a line on standard input, column to value.
//
//     echo '{"3": 1.0, "17": 2.5}' | node producer.mjs localhost:9092 rows
//
// A column is a number, or with `input.columns: hashed` a feature's name. Needs two packages: npm install, beside
// package.json. What is sent is written down in docs/reference/formats.md.

import { createInterface } from "node:readline";
import { encode } from "@msgpack/msgpack";
import { Kafka, Partitioners } from "kafkajs";

const BATCH = 500;

/** Whether it is a number of 32 bits, written as numbers are: "007" and a telephone number are names. */
function isNumber(column) {
  return /^(0|[1-9][0-9]{0,9})$/.test(column) && Number(column) < 2 ** 32;
}

/** One message's value. Numbered columns go packed, the form that is read fastest; names go as a list. */
function encodeRow(row) {
  const entries = Object.entries(row);
  if (!entries.every(([column]) => isNumber(column))) {
    return Buffer.from(encode({ i: entries.map(([name]) => name), v: entries.map(([, value]) => value) }));
  }
  entries.sort(([a], [b]) => Number(a) - Number(b));
  const columns = Buffer.alloc(4 * entries.length);
  const values = Buffer.alloc(8 * entries.length);
  entries.forEach(([column, value], place) => {
    columns.writeUInt32LE(Number(column), 4 * place);
    values.writeDoubleLE(value, 8 * place);
  });
  return Buffer.from(encode({ i: columns, v: values })); // msgpack writes a Buffer as bin
}

/** Sends all lines; every message is confirmed by all replicas, or an error ends it. */
async function main(broker, topic) {
  const kafka = new Kafka({ clientId: "rows", brokers: broker.split(","), logLevel: 1 });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  let rows = 0;
  let batch = [];
  const send = async () => {
    if (batch.length > 0) {
      await producer.send({ topic, messages: batch, acks: -1 });
      rows += batch.length;
      batch = [];
    }
  };
  try {
    for await (const line of createInterface({ input: process.stdin })) {
      batch.push({ value: encodeRow(JSON.parse(line)) });
      if (batch.length === BATCH) await send();
    }
    await send();
  } finally {
    await producer.disconnect();
  }
  console.log(`${rows} rows to ${topic}`);
}

await main(process.argv[2], process.argv[3]);
