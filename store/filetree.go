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

// fileFormat is the version of all this, and oldestFormat the oldest that can be read. In format 1 each
// batch and each part of a snapshot was sealed by itself, and the head did not know its transaction.
const (
	fileFormat   = 2
	oldestFormat = 1
)

// A head says what must be found in the rest of a journal. Every transaction writes it.
//
// A disk that loses a write leaves an older page in its place, which was as good as any other in its
// time. So check sums of single things are not enough. The head has the number of its transaction: an
// older head does not fit to the page that bbolt begins with. The sum of a batch depends on all batches
// before it, that of a part on all parts before it, and the head has the last of each: an older batch or
// part, or one that was never acknowledged, does not fit to its head. Neither does an older list of values;
// the values themselves are known by their digests.
type head struct {
	format        byte          // that it was read from
	store         serry.StoreID // an entry of its own, written once; 0 before the first reign
	term          uint64
	base, last    uint64 // numbers of the last batch that the snapshot covers, and of the last of all
	saved         bool   // there is a snapshot
	snapshotBytes uint64

	baseSum, lastSum uint32 // of the batches base and last, or 0 before the first
	snapshotSum      uint32 // of the last part
	valuesSum        uint64 // refSum of all complete values, one xor the other
}

// Lengths of a head: format, flags, four numbers; and since format 2 the transaction and the sums.
const (
	headBytes1 = 2 + 4*8
	headBytes  = headBytes1 + 2*8 + 3*4
)

func (h head) write(tx *bbolt.Tx) error {
	b := []byte{fileFormat, 0}
	if h.saved {
		b[1] = 1
	}
	for _, n := range []uint64{h.term, h.base, h.last, h.snapshotBytes, uint64(tx.ID()), h.valuesSum} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, sum := range []uint32{h.baseSum, h.lastSum, h.snapshotSum} {
		b = binary.BigEndian.AppendUint32(b, sum)
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
	if b[0] < oldestFormat || b[0] > fileFormat {
		return head{}, &coord.VersionError{What: "journal file", Version: uint64(b[0]), Oldest: oldestFormat, Newest: fileFormat}
	}
	if want := map[byte]int{1: headBytes1, fileFormat: headBytes}[b[0]]; len(b) != want {
		return head{}, fmt.Errorf("%w: its head has %d bytes of %d", ErrDamaged, len(b), want)
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[2+8*i:]) }
	h := head{format: b[0], term: n(0), base: n(1), last: n(2), saved: b[1] == 1, snapshotBytes: n(3)}
	var err error
	if h.store, err = readID(tx); err != nil || h.format == 1 {
		return h, err
	}
	if n(4) != uint64(tx.ID()) {
		return head{}, fmt.Errorf("%w: its head is of transaction %d, the last one is %d", ErrDamaged, n(4), tx.ID())
	}
	sum := func(i int) uint32 { return binary.BigEndian.Uint32(b[headBytes1+2*8+4*i:]) }
	h.baseSum, h.lastSum, h.snapshotSum, h.valuesSum = sum(0), sum(1), sum(2), n(5)
	values, err := sumValues(tx)
	if err == nil && values != h.valuesSum {
		err = fmt.Errorf("%w: its list of values is an older one", ErrDamaged)
	}
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

// sumValues is the sum of all complete values.
func sumValues(tx *bbolt.Tx) (sum uint64, err error) {
	err = tx.Bucket(valuesBucket).ForEach(func(k, _ []byte) error {
		ref, ok := readRef(k)
		if !ok {
			return fmt.Errorf("%w: a value without a digest", ErrDamaged)
		}
		sum ^= refSum(ref)
		return nil
	})
	return sum, err
}

// refSum is what a value adds to head.valuesSum.
func refSum(ref coord.Ref) uint64 { return binary.BigEndian.Uint64(ref.Digest[:]) ^ uint64(ref.Size) }

// chain returns the checksum that an entry continues, where before is the checksum of the entry before it. In
// format 1 an entry continued none.
func (h head) chain(before uint32) uint32 {
	if h.format == 1 {
		return 0
	}
	return before
}

// castagnoli is the polynomial that processors know.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal puts a check sum in front of bytes, so that a page of other bytes in their place is noticed.
func seal(b []byte) []byte { return sealAfter(0, b) }

func unseal(s []byte) ([]byte, bool) { return unsealAfter(0, s) }

// sealAfter is seal with a checksum that continues the checksum of the entry before.
func sealAfter(before uint32, b []byte) []byte {
	s := make([]byte, 4, 4+len(b))
	binary.BigEndian.PutUint32(s, crc32.Update(before, castagnoli, b))
	return append(s, b...)
}

func unsealAfter(before uint32, s []byte) ([]byte, bool) {
	if len(s) < 4 || sumOf(s) != crc32.Update(before, castagnoli, s[4:]) {
		return nil, false
	}
	return s[4:], true
}

// sumOf returns the checksum of sealed bytes.
func sumOf(s []byte) uint32 { return binary.BigEndian.Uint32(s) }

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

// parts cuts b into parts of at most size bytes. No bytes are one empty part.
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
