package collective

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
)

const (
	// MaxRanks bounds a clique: its key has to fit into one frame.
	MaxRanks = 2048

	maxLocal = 256 // ranks of a clique in one process: a message names them by a byte
)

// A Place is one rank of a clique: a device, and the life of the task that drives it.
type Place struct {
	Device serry.DeviceID
	Life   serry.Life
}

// A Key names a clique. Two cliques are the same where their keys are equal.
type Key struct {
	// Ranks has the members; the index is the rank (CL-KEY-1). Since a key has lives and not only tasks, it never
	// names a clique of a process that was restarted (CL-KEY-13).
	Ranks []Place

	// Traffic tells cliques of the same members apart that work independently of each other.
	Traffic uint64

	// Generation is 0 for a clique made by Group.Clique, and rises with each Reform and Extend (CL-KEY-16).
	Generation uint32
}

// Rank is the rank of a device.
func (k *Key) Rank(d serry.DeviceID) (rank int, ok bool) {
	rank = slices.IndexFunc(k.Ranks, func(p Place) bool { return p.Device == d })
	return rank, rank >= 0
}

// Devices lists the devices by rank.
func (k *Key) Devices() []serry.DeviceID {
	list := make([]serry.DeviceID, len(k.Ranks))
	for i, p := range k.Ranks {
		list[i] = p.Device
	}
	return list
}

// Lives lists the processes of the clique, each once, sorted.
func (k *Key) Lives() []serry.Life {
	list := make([]serry.Life, len(k.Ranks))
	for i, p := range k.Ranks {
		list[i] = p.Life
	}
	slices.SortFunc(list, serry.Life.Compare)
	return slices.Compact(list)
}

// RanksOf lists the ranks of a process.
func (k *Key) RanksOf(l serry.Life) (ranks []int) {
	for i, p := range k.Ranks {
		if p.Life == l {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Roots lists the devices that begin n parts of the clique of nearly equal size, the larger parts first. A library
// that is started by several of its ranks, each for its part, is started by these (CL-KEY-12).
func (k *Key) Roots(n int) ([]serry.DeviceID, error) {
	p := len(k.Ranks)
	if n < 1 || n > p {
		return nil, invalid("%d roots of %d ranks", n, p)
	}
	list := make([]serry.DeviceID, n)
	for i := range list {
		list[i] = k.Ranks[i*(p/n)+min(i, p%n)].Device
	}
	return list, nil
}

// Compare orders keys: those with fewer ranks first, then by devices, traffic, lives and generation (CL-KEY-4).
func (k *Key) Compare(other *Key) int {
	return cmp.Or(
		cmp.Compare(len(k.Ranks), len(other.Ranks)),
		slices.Compare(k.Devices(), other.Devices()),
		cmp.Compare(k.Traffic, other.Traffic),
		slices.CompareFunc(k.Ranks, other.Ranks, func(a, b Place) int { return a.Life.Compare(b.Life) }),
		cmp.Compare(k.Generation, other.Generation),
	)
}

// Within says whether every member of k is one of other, in the same life, and for the same traffic and generation
// (CL-KEY-6).
func (k *Key) Within(other *Key) bool {
	if k.Traffic != other.Traffic || k.Generation != other.Generation {
		return false
	}
	for _, p := range k.Ranks {
		if !slices.Contains(other.Ranks, p) {
			return false
		}
	}
	return true
}

// String is the key for people (CL-KEY-8).
func (k *Key) String() string {
	var incarnations []string
	for _, l := range k.Lives() {
		incarnations = append(incarnations, strconv.FormatUint(uint64(l.Incarnation), 10))
	}
	text := fmt.Sprintf("devices=%d:[%s]; traffic=%d; incarnations=[%s]", len(k.Ranks), shortened(k.Devices()), k.Traffic,
		shortened(incarnations))
	if k.Generation > 0 {
		text += fmt.Sprintf("; generation=%d", k.Generation)
	}
	return text
}

// shortened is a list for people: of more than ten the first eight and the last two.
func shortened[T any](list []T) string {
	const most, first, last = 10, 8, 2
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	if len(texts) <= most {
		return strings.Join(texts, ",")
	}
	return strings.Join(texts[:first], ",") + "..." + strings.Join(texts[len(texts)-last:], ",")
}

// Fingerprint is a number over everything in the key, the same in every process and version (CL-KEY-14).
func (k *Key) Fingerprint() uint64 {
	h := fnv.New64a()
	h.Write(k.append(nil))
	return h.Sum64()
}

// append adds the canonical bytes of the key: a version, traffic, generation, the names of jobs, lives, and of each
// rank its device and the place of its life.
func (k *Key) append(b []byte) []byte {
	le := binary.LittleEndian
	lives := k.Lives()
	var jobs []string
	for _, l := range lives {
		if !slices.Contains(jobs, l.Task.Job) {
			jobs = append(jobs, l.Task.Job)
		}
	}
	b = append(b, keyVersion)
	b = le.AppendUint64(b, k.Traffic)
	b = le.AppendUint32(b, k.Generation)
	b = le.AppendUint16(b, uint16(len(jobs)))
	for _, j := range jobs {
		b = appendText(b, j)
	}
	b = le.AppendUint16(b, uint16(len(lives)))
	for _, l := range lives {
		b = le.AppendUint16(b, uint16(slices.Index(jobs, l.Task.Job)))
		b = le.AppendUint32(b, uint32(l.Task.Index))
		b = le.AppendUint64(b, uint64(l.Incarnation))
	}
	b = le.AppendUint16(b, uint16(len(k.Ranks)))
	for _, p := range k.Ranks {
		b = le.AppendUint64(b, uint64(p.Device))
		b = le.AppendUint16(b, uint16(slices.Index(lives, p.Life)))
	}
	return b
}

const keyVersion = 1

// parseKey reads what append wrote. Bytes that are not the canonical ones of a key are refused.
func parseKey(b []byte) (*Key, error) {
	r := reader{rest: b}
	if r.byte() != keyVersion {
		return nil, errMalformed
	}
	k := &Key{Traffic: r.uint64(), Generation: r.uint32()}
	jobs := make([]string, r.count(2))
	for i := range jobs {
		jobs[i] = r.text()
	}
	lives := make([]serry.Life, r.count(14))
	for i := range lives {
		job, index, incarnation := int(r.uint16()), r.uint32(), r.uint64()
		if job >= len(jobs) {
			return nil, errMalformed
		}
		lives[i] = serry.Life{Task: serry.TaskID{Job: jobs[job], Index: int(index)}, Incarnation: serry.Incarnation(incarnation)}
	}
	k.Ranks = make([]Place, r.count(10))
	for i := range k.Ranks {
		device, life := serry.DeviceID(r.uint64()), int(r.uint16())
		if life >= len(lives) {
			return nil, errMalformed
		}
		k.Ranks[i] = Place{device, lives[life]}
	}
	if r.failed || len(r.rest) > 0 || k.check() != nil || !bytes.Equal(k.append(nil), b) {
		return nil, errMalformed
	}
	return k, nil
}

// check says what is wrong with the key.
func (k *Key) check() error {
	if err := k.checkSize(); err != nil {
		return err
	}
	devices := k.Devices()
	slices.Sort(devices)
	for i, d := range devices {
		if i > 0 && devices[i-1] == d {
			return invalid("clique with device %d twice", d)
		}
	}
	local := make(map[serry.Life]int)
	for _, p := range k.Ranks {
		if local[p.Life]++; local[p.Life] > maxLocal {
			return invalid("clique with more than %d ranks of %v", maxLocal, p.Life.Task)
		}
	}
	return nil
}

func (k *Key) checkSize() error {
	if len(k.Ranks) == 0 || len(k.Ranks) > MaxRanks {
		return invalid("clique of %d ranks, want 1 to %d", len(k.Ranks), MaxRanks)
	}
	return nil
}
