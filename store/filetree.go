package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"

	"go.etcd.io/bbolt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// The buckets of a journal, and what is in them. Everything but keys is sealed.
var (
	headBucket     = []byte("head")     // two entries: the head, and the number of the store
	journalBucket  = []byte("journal")  // number of a batch -> batch
	snapshotBucket = []byte("snapshot") // number of a part -> part
	valuesBucket   = []byte("values")   // ref -> nothing: the value is complete
	partsBucket    = []byte("parts")    // ref, number of a part -> part

	// stagedBucket holds the snapshotBucket to come, while that is written. A journal may have none yet.
	stagedBucket = []byte("staged")

	buckets = [][]byte{headBucket, journalBucket, snapshotBucket, valuesBucket, partsBucket}
	headKey = []byte("head")
	idKey   = []byte("store") // there is none before the first reign
)

// fileFormat is the version of all this.
const fileFormat = 1

// A head says what must be found in the rest of a journal.
type head struct {
	store         serry.StoreID // an entry of its own, written once; 0 before the first reign
	term          uint64
	base, last    uint64 // numbers of the last batch that the snapshot covers, and of the last of all
	saved         bool   // there is a snapshot
	snapshotBytes uint64
}

func (h head) write(tx *bbolt.Tx) error {
	b := []byte{fileFormat, 0}
	if h.saved {
		b[1] = 1
	}
	for _, n := range []uint64{h.term, h.base, h.last, h.snapshotBytes} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return tx.Bucket(headBucket).Put(headKey, seal(b))
}

func readHead(tx *bbolt.Tx) (head, error) {
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return head{}, fmt.Errorf("%w: no part called %s", ErrDamaged, name)
		}
	}
	b, ok := unseal(tx.Bucket(headBucket).Get(headKey))
	if !ok || len(b) == 0 {
		return head{}, fmt.Errorf("%w: its head", ErrDamaged)
	}
	if b[0] != fileFormat || len(b) != 2+4*8 {
		return head{}, fmt.Errorf("journal format %d is not known to this version of serry, which reads %d", b[0], fileFormat)
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[2+8*i:]) }
	h := head{term: n(0), base: n(1), last: n(2), saved: b[1] == 1, snapshotBytes: n(3)}
	var err error
	h.store, err = readID(tx)
	return h, err
}

// writeID writes the number of the store.
func writeID(tx *bbolt.Tx, id serry.StoreID) error {
	return tx.Bucket(headBucket).Put(idKey, seal(number(uint64(id))))
}

// readID reads the number of the store, 0 if it has none yet.
func readID(tx *bbolt.Tx) (serry.StoreID, error) {
	sealed := tx.Bucket(headBucket).Get(idKey)
	if sealed == nil {
		return 0, nil
	}
	b, ok := unseal(sealed)
	if !ok || len(b) != 8 {
		return 0, fmt.Errorf("%w: the number of the store", ErrDamaged)
	}
	return serry.StoreID(binary.BigEndian.Uint64(b)), nil
}

// castagnoli is the polynomial that processors know.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal puts a check sum in front of bytes, so that a page of other bytes in their place is noticed.
func seal(b []byte) []byte {
	s := make([]byte, 4, 4+len(b))
	binary.BigEndian.PutUint32(s, crc32.Checksum(b, castagnoli))
	return append(s, b...)
}

func unseal(s []byte) ([]byte, bool) {
	if len(s) < 4 || binary.BigEndian.Uint32(s) != crc32.Checksum(s[4:], castagnoli) {
		return nil, false
	}
	return s[4:], true
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// refBytes is the length of a ref in keys: digest and size.
const refBytes = 32 + 8

func refKey(ref coord.Ref) []byte {
	return binary.BigEndian.AppendUint64(ref.Digest[:len(ref.Digest):len(ref.Digest)], uint64(ref.Size))
}

func partKey(ref coord.Ref, i int) []byte {
	return binary.BigEndian.AppendUint32(refKey(ref), uint32(i))
}

// readRef reads the ref at the beginning of a key.
func readRef(k []byte) (ref coord.Ref, ok bool) {
	if len(k) < refBytes {
		return coord.Ref{}, false
	}
	copy(ref.Digest[:], k)
	ref.Size = int64(binary.BigEndian.Uint64(k[32:]))
	return ref, true
}

// partBytes is the size of the parts that long things are written in.
const partBytes = 8 << 20

// parts cuts bytes into parts of a size, at least one.
func parts(b []byte, size int) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for i := 0; i == 0 || len(b) > 0; i++ {
			n := min(len(b), size)
			if !yield(i, b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}
