package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/klauspost/compress/zstd"
	"github.com/vmihailenco/msgpack/v5"
)

const maxBytes = 1 << 30 // what one snapshot may take when it is decoded

var decompressor, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBytes))

// message is a snapshot, or a reference to one that is in the checkpoint store.
type message interface{ id() identity }

type identity struct {
	Group     string  `msgpack:"group"`
	Topic     string  `msgpack:"topic"`
	Partition uint64  `msgpack:"partition"`
	Epoch     uint64  `msgpack:"epoch"`
	Number    uint64  `msgpack:"number"`
	Window    *string `msgpack:"window"`
}

func (i identity) key() string {
	key := fmt.Sprintf("%s/%s/%d", i.Group, i.Topic, i.Partition)
	if i.Window != nil {
		key += "@" + *i.Window
	}
	return key
}

// after reports whether this is newer than another message of the same key, whichever was written last.
func (i identity) after(other identity) bool {
	if i.Epoch != other.Epoch {
		return i.Epoch > other.Epoch
	}
	return i.Number > other.Number
}

type reference struct {
	ID    identity `msgpack:"id"`
	Store string   `msgpack:"store"`
	Key   string   `msgpack:"key"`
	Size  uint64   `msgpack:"size"`
}

func (r *reference) id() identity { return r.ID }

type snapshot struct {
	ID         identity `msgpack:"id"`
	D          uint64   `msgpack:"d"`
	Ell        uint64   `msgpack:"ell"`
	Rows       uint64   `msgpack:"rows"`
	Delta      float64  `msgpack:"delta"`
	Columns    string   `msgpack:"columns"`
	HashSeed   *uint64  `msgpack:"hash_seed"`
	Dtype      string   `msgpack:"dtype"`
	MatrixRows uint64   `msgpack:"matrix_rows"`
	Matrix     []byte   `msgpack:"matrix"`
	Names      []byte   `msgpack:"names"`
	Parts      []part   `msgpack:"parts"`

	squares []float64      // of each column of B
	named   map[int]string // of hashed columns, those known
}

type part struct {
	ID identity `msgpack:"id"`
}

func (s *snapshot) id() identity { return s.ID }

func (s *snapshot) name(column int) string {
	if name, ok := s.named[column]; ok {
		return name
	}
	return strconv.Itoa(column)
}

// decode checks the seal before anything else is believed.
func decode(value []byte) (message, error) {
	var sealed struct {
		Schema   string `msgpack:"schema"`
		Version  int    `msgpack:"version"`
		Checksum []byte `msgpack:"checksum"`
		Body     []byte `msgpack:"body"`
	}
	if err := msgpack.Unmarshal(value, &sealed); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte(fmt.Sprintf("%s %d ", sealed.Schema, sealed.Version)), sealed.Body...))
	if !bytes.Equal(sum[:16], sealed.Checksum) {
		return nil, errors.New("damaged")
	}
	if sealed.Version != 1 {
		return nil, fmt.Errorf("version %d is newer than this reader", sealed.Version)
	}
	switch sealed.Schema {
	case "sfd-reference":
		found := &reference{}
		return found, msgpack.Unmarshal(sealed.Body, found)
	case "sfd-snapshot":
		found := &snapshot{}
		if err := msgpack.Unmarshal(sealed.Body, found); err != nil {
			return nil, err
		}
		return found, found.unpack()
	}
	return nil, fmt.Errorf("unknown schema %q", sealed.Schema)
}

// unpack reads the matrix and the names. Sizes are checked before memory is taken for them.
func (s *snapshot) unpack() error {
	width := map[string]uint64{"float64": 8, "float32": 4}[s.Dtype]
	if width == 0 || s.MatrixRows > s.Ell || s.D > maxBytes/8 || 8*s.D*(s.MatrixRows+1) > maxBytes {
		return errors.New("too large, or of an unknown dtype")
	}
	if s.Columns == "hashed" && s.HashSeed == nil {
		return errors.New("hashed columns without a seed")
	}
	raw, err := decompressor.DecodeAll(s.Matrix, nil)
	if err != nil || uint64(len(raw)) != s.MatrixRows*s.D*width {
		return errors.New("the matrix is not what its head says")
	}
	s.squares = make([]float64, s.D)
	for place := uint64(0); place < s.MatrixRows*s.D; place++ {
		var number float64
		if width == 8 {
			number = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*place:]))
		} else {
			number = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*place:])))
		}
		s.squares[place%s.D] += number * number
	}
	return s.unpackNames()
}

func (s *snapshot) unpackNames() error {
	s.named = map[int]string{}
	if s.Names == nil {
		return nil
	}
	raw, err := decompressor.DecodeAll(s.Names, nil)
	if err != nil {
		return err
	}
	var lists struct {
		_msgpack struct{} `msgpack:",as_array"`
		Columns  []int
		Names    []string
	}
	if err := msgpack.Unmarshal(raw, &lists); err != nil || len(lists.Columns) != len(lists.Names) {
		return errors.New("the names are not two lists of one length")
	}
	for place, column := range lists.Columns {
		s.named[column] = lists.Names[place]
	}
	return nil
}

// merge adds up snapshots of different rows ("Merging" in docs/reference/formats.md). B is the rows of all B, one below the
// other, so rows, deltas and sums of squares add up.
func merge(snapshots []*snapshot) (*snapshot, error) {
	all := &snapshot{named: map[int]string{}}
	seen := map[string]bool{}
	first := snapshots[0]
	for _, one := range snapshots {
		if one.Columns != first.Columns || (one.Columns == "hashed" && (one.D != first.D || *one.HashSeed != *first.HashSeed)) {
			return nil, errors.New("columns do not mean the same")
		}
		for _, input := range one.inputs() {
			if seen[input] {
				return nil, fmt.Errorf("the rows of %s would count twice", input)
			}
			seen[input] = true
		}
		all.Rows += one.Rows
		all.Delta += one.Delta
		for len(all.squares) < len(one.squares) { // narrower ones are padded with zero columns
			all.squares = append(all.squares, 0)
		}
		for column, value := range one.squares {
			all.squares[column] += value
		}
		for column, name := range one.named {
			all.named[column] = name
		}
	}
	return all, nil
}

// inputs returns the input partitions whose rows are in it.
func (s *snapshot) inputs() []string {
	if len(s.Parts) == 0 {
		return []string{s.ID.key()}
	}
	keys := []string{}
	for _, one := range s.Parts {
		keys = append(keys, one.ID.key())
	}
	return keys
}
