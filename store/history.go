package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/coord"
)

// An exported history is one file: historyMagic, then entries, each a kind, the length of its bytes, the
// bytes, and their check sum. The last entry says how many there are before it.
const (
	historyMagic   = historyPrefix + "1\n"
	historyPrefix  = "serry history "
	historyVersion = 1
)

// An entryKind is what an entry of an exported history is.
type entryKind byte

const (
	entrySnapshot entryKind = 's' // at most one, the first
	entryBatch    entryKind = 'b'
	entryValue    entryKind = 'v' // digest, then the value
	entryEnd      entryKind = 'e'
)

// entryHead is the length of kind and length, entrySum that of the sum.
const (
	entryHead = 1 + 8
	entrySum  = 4
)

// Export writes a history as one file that [Read] opens: an incident to be looked at elsewhere.
func Export(ctx context.Context, w io.Writer, from Journal) error {
	e := &exporter{w: bufio.NewWriter(w)}
	if _, err := e.w.WriteString(historyMagic); err != nil {
		return err
	}
	snapshot, batches, err := from.Load(ctx)
	if err != nil {
		return err
	}
	if snapshot != nil {
		if err := e.entry(entrySnapshot, snapshot); err != nil {
			return err
		}
	}
	for batch, err := range batches {
		if err := errors.Join(err, e.entry(entryBatch, batch)); err != nil {
			return err
		}
	}
	for ref, err := range from.Values(ctx) {
		if err != nil {
			return err
		}
		value, err := from.Get(ctx, ref)
		if err != nil {
			return err
		}
		if err := e.entry(entryValue, ref.Digest[:], value); err != nil {
			return err
		}
	}
	if err := e.entry(entryEnd, number(e.entries)); err != nil {
		return err
	}
	return e.w.Flush()
}

type exporter struct {
	w       *bufio.Writer
	entries uint64
}

func (e *exporter) entry(kind entryKind, pieces ...[]byte) error {
	e.entries++
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	b := binary.BigEndian.AppendUint64([]byte{byte(kind)}, uint64(size))
	sum := crc32.Update(0, castagnoli, b)
	for _, p := range append([][]byte{b}, pieces...) {
		if _, err := e.w.Write(p); err != nil {
			return err
		}
	}
	for _, p := range pieces {
		sum = crc32.Update(sum, castagnoli, p)
	}
	_, err := e.w.Write(binary.BigEndian.AppendUint32(nil, sum))
	return err
}

// A History is a journal at rest, to be closed after use.
type History struct {
	Journal
	io.Closer
}

// Read opens a history without a server: the folder of a [File] store that is not in use, a copy of the
// database in it, or a file that [Export] wrote. Nothing is changed.
func Read(name string) (*History, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if info.IsDir() {
		return readDatabase(filepath.Join(name, journalName))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	magic := make([]byte, len(historyMagic))
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != historyMagic {
		f.Close()
		if err := otherVersion(string(magic)); err != nil {
			return nil, fmt.Errorf("store: %s: %w", name, err)
		}
		return readDatabase(name)
	}
	e, err := readExport(f, info.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w: %w", name, ErrDamaged, err), f.Close())
	}
	return &History{Journal: e, Closer: f}, nil
}

// otherVersion is an error if magic is that of an exported history of another version.
func otherVersion(magic string) error {
	text, ok := strings.CutPrefix(magic, historyPrefix)
	if !ok {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n")
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %q is no version of an exported history", ErrDamaged, text)
	}
	return &coord.VersionError{What: "exported history", Version: version, Oldest: historyVersion, Newest: historyVersion}
}

func readDatabase(name string) (*History, error) {
	db, h, err := openDatabase(name, true, 0)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", name, err)
	}
	return &History{Journal: fileJournal{db: db, name: name, head: h}, Closer: db}, nil
}

// An export is an exported history: where in it things are.
type export struct {
	r        io.ReaderAt
	snapshot *span // or nil
	batches  []span
	values   map[coord.Ref]span
	order    []coord.Ref
}

// A span is where the head of an entry begins, and how many bytes it is about.
type span struct{ off, size int64 }

// readExport finds the entries of a file of size bytes. It reads none of them yet.
func readExport(r io.ReaderAt, size int64) (*export, error) {
	e := &export{r: r, values: make(map[coord.Ref]span)}
	off := int64(len(historyMagic))
	for n := uint64(0); ; n++ {
		var head [entryHead + 32]byte
		if k, err := r.ReadAt(head[:], off); err != nil && (err != io.EOF || k < entryHead) {
			return nil, fmt.Errorf("entry %d: %w", n, io.ErrUnexpectedEOF)
		}
		length := binary.BigEndian.Uint64(head[1:])
		if length > uint64(size) || int64(length) > size-off-entryHead-entrySum {
			return nil, fmt.Errorf("entry %d: %w", n, io.ErrUnexpectedEOF)
		}
		at := span{off: off, size: int64(length)}
		off += entryHead + at.size + entrySum
		if entryKind(head[0]) == entryEnd {
			return e, e.end(at, n, off == size)
		}
		if err := e.add(entryKind(head[0]), at, n, head[entryHead:]); err != nil {
			return nil, err
		}
	}
}

func (e *export) add(kind entryKind, at span, n uint64, digest []byte) error {
	switch {
	case kind == entrySnapshot && n == 0:
		e.snapshot = &at
	case kind == entryBatch:
		e.batches = append(e.batches, at)
	case kind == entryValue && at.size >= 32:
		ref := coord.Ref{Digest: [32]byte(digest), Size: at.size - 32}
		e.values[ref] = at
		e.order = append(e.order, ref)
	default:
		return fmt.Errorf("entry %d is of no known kind", n)
	}
	return nil
}

func (e *export) end(at span, n uint64, last bool) error {
	b, err := e.read(at)
	if err != nil {
		return err
	}
	if !bytes.Equal(b, number(n)) || !last {
		return errors.New("its end is not where it should be")
	}
	return nil
}

// read reads an entry and compares its sum.
func (e *export) read(at span) ([]byte, error) {
	b := make([]byte, entryHead+at.size+entrySum)
	if _, err := e.r.ReadAt(b, at.off); err != nil && err != io.EOF {
		return nil, fmt.Errorf("store: %w: %w", ErrDamaged, err)
	}
	body, sum := b[:entryHead+at.size], b[entryHead+at.size:]
	if binary.BigEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return nil, fmt.Errorf("store: %w: %d bytes at %d are not those that were written", ErrDamaged, at.size, at.off)
	}
	return body[entryHead:], nil
}

func (e *export) Load(context.Context) (snapshot []byte, batches iter.Seq2[[]byte, error], err error) {
	if e.snapshot != nil {
		if snapshot, err = e.read(*e.snapshot); err != nil {
			return nil, nil, err
		}
	}
	return snapshot, func(yield func([]byte, error) bool) {
		for _, at := range e.batches {
			if batch, err := e.read(at); !yield(batch, err) || err != nil {
				return
			}
		}
	}, nil
}

func (e *export) Get(_ context.Context, ref coord.Ref) ([]byte, error) {
	at, ok := e.values[ref]
	if !ok {
		return nil, ErrNoValue
	}
	b, err := e.read(at)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(b[32:]) != ref.Digest {
		return nil, fmt.Errorf("store: %w: value %x", ErrDamaged, ref.Digest)
	}
	return b[32:], nil
}

func (e *export) Values(context.Context) iter.Seq2[coord.Ref, error] { return each(e.order) }

// each is a sequence of values without errors.
func each(refs []coord.Ref) iter.Seq2[coord.Ref, error] {
	return func(yield func(coord.Ref, error) bool) {
		for _, ref := range refs {
			if !yield(ref, nil) {
				return
			}
		}
	}
}
