package launch

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// When a job hangs, all of its ranks come to stand still within seconds, at a few places. So a launcher tells the first one what its
// ranks do in few bytes (D-EV-6): ranks of one host that do the same are told of together, and what they do is named by a digest. A
// launcher that is the first to use a digest is asked what it means, and no other one (unfold.go).
//
// What is told is a line: the number of a rank, a colon, and groups of ranks, separated by semicolons. A group is
//
//	RANKS[/ATTEMPT.LIFE] AGE DIGEST [DIGEST PID,PID…]
//
// the ranks as runs, counted from that number; their attempt and life, unless both are 1; for how many tenths of a second they have done the same; the digest of
// a detail; and, once for each process, the digest of its program and its number.

const (
	foldAfter   = 1500 * time.Millisecond // changes of class are told of together; ranks are looked at once a second, half of them by turns
	foldUnit    = 100 * time.Millisecond
	foldWithin  = time.Second // ages that differ by so much count as the same, the least: stacks are looked at every 2 s
	detailsKept = 1 << 10     // that a launcher can be asked for
)

// A detail is what ranks do, but for since when.
type detail struct {
	diagnose.Condition
	Left time.Duration `json:",omitempty"` // of the phase that they have declared
}

// A folder puts changes of class together. It is owned by the goroutine of its follower.
type folder struct {
	waiting map[int]foldedTask
	told    map[int]lifetime // whose processes have been told of
	kept    map[string]string
	order   []string // digests of kept, the oldest first
	open    bool     // a line is to be told soon
}

type foldedTask struct {
	classed
	at time.Time // when it was known
}

// add takes note of a change. It says whether that is the first one of a line.
func (f *folder) add(ev classed) (first bool) {
	if f.waiting == nil {
		f.waiting, f.told, f.kept = make(map[int]foldedTask), make(map[int]lifetime), make(map[string]string)
	}
	f.waiting[ev.Task] = foldedTask{ev, time.Now()}
	first, f.open = !f.open, true
	return first
}

// drop forgets what a task did: it has ended.
func (f *folder) drop(task int) { delete(f.waiting, task) }

// A fold is a group of ranks.
type fold struct {
	ranks   diagnose.RankSet
	attempt int
	life    int
	age     time.Duration // the least
	detail  string        // its digest
	program string        // the digest, or empty
	pids    []int
}

// line is what has changed, and forgets it. It is empty if nothing has.
func (f *folder) line() string {
	var folds []*fold
	for _, task := range sortedKeys(f.waiting) {
		ev := f.waiting[task]
		one := f.fold(ev)
		i := slices.IndexFunc(folds, func(o *fold) bool {
			return o.attempt == one.attempt && o.life == one.life && o.detail == one.detail && o.program == one.program && (o.age-one.age).Abs() <= foldWithin
		})
		if i < 0 {
			folds = append(folds, one)
			continue
		}
		o := folds[i]
		o.ranks, o.pids, o.age = append(o.ranks, task), append(o.pids, one.pids...), min(o.age, one.age)
	}
	clear(f.waiting)
	f.open = false
	if len(folds) == 0 {
		return ""
	}
	base := folds[0].ranks[0] // the least of all
	var all []string
	for _, one := range folds {
		for i := range one.ranks {
			one.ranks[i] -= base
		}
		all = append(all, one.String())
	}
	return fmt.Sprintf("%d:%s", base, strings.Join(all, ";"))
}

// fold is the group of one rank.
func (f *folder) fold(ev foldedTask) *fold {
	age := time.Since(ev.at)
	d := detail{Condition: ev.Condition}
	if d.Phase != "" {
		d.Left = (ev.Left - age).Round(time.Second)
	}
	d.Since, d.Until, d.Rate = 0, 0, twoDigits(d.Rate)
	one := &fold{ranks: diagnose.RankSet{ev.Task}, attempt: ev.Attempt, life: ev.Life, age: max(0, ev.Age+age), detail: f.keep(d)}
	if f.told[ev.Task] != ev.lifetime && ev.PID > 0 {
		f.told[ev.Task] = ev.lifetime
		one.program, one.pids = f.keep(ev.Program), []int{ev.PID}
	}
	return one
}

// twoDigits is a number but for all that follows its first two digits: ranks that write at nearly the same rate do the same.
func twoDigits(n uint64) uint64 {
	unit := uint64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return n / unit * unit
}

// keep keeps a text for the first launcher to ask for, and returns its digest.
func (f *folder) keep(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // no launcher knows it
	}
	digest := foldDigest(b)
	if _, known := f.kept[digest]; !known {
		f.kept[digest], f.order = string(b), append(f.order, digest)
	}
	if len(f.order) > detailsKept {
		delete(f.kept, f.order[0])
		f.order = f.order[1:]
	}
	return digest
}

// foldDigest names a text in mostDigest letters.
func foldDigest(b []byte) string {
	d := wire.DigestOf(b)
	var raw [6]byte
	for i := range raw {
		raw[i] = byte(d >> (8 * i))
	}
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func (o *fold) String() string {
	text := o.ranks.String()
	if o.attempt != 1 || o.life != 1 {
		text += fmt.Sprintf("/%d.%d", o.attempt, o.life)
	}
	text += fmt.Sprintf(" %d %s", o.age/foldUnit, o.detail)
	if o.program == "" {
		return text
	}
	text += " " + o.program + " "
	for i, pid := range o.pids {
		if i > 0 {
			text += ","
		}
		text += strconv.Itoa(pid)
	}
	return text
}

// readFolds reads what line wrote.
func readFolds(line string, cfg Config) (all []fold, err error) {
	first, rest, _ := strings.Cut(line, ":")
	base, err := strconv.Atoi(first)
	if err != nil || base < 0 || base >= cfg.total() {
		return nil, nonsense("ranks that do %q", cut(line))
	}
	for text := range strings.SplitSeq(rest, ";") {
		o, ok := readFold(text, cfg, base)
		if !ok || len(all) >= cfg.total() {
			return nil, nonsense("ranks that do %q", cut(text))
		}
		all = append(all, o)
	}
	return all, nil
}

func readFold(text string, cfg Config, base int) (o fold, ok bool) {
	words := strings.Split(text, " ")
	if len(words) != 3 && len(words) != 5 {
		return o, false
	}
	ranks, life, named := strings.Cut(words[0], "/")
	o.attempt, o.life = 1, 1
	if named {
		attempt, l, _ := strings.Cut(life, ".")
		var bad, worse error
		o.attempt, bad = strconv.Atoi(attempt)
		o.life, worse = strconv.Atoi(l)
		if bad != nil || worse != nil || o.attempt < 1 || o.life < 1 {
			return o, false
		}
	}
	age, err := strconv.ParseUint(words[1], 10, 32)
	if err != nil {
		return o, false
	}
	o.age, o.detail = time.Duration(age)*foldUnit, words[2]
	if o.ranks, err = diagnose.ParseRankSet(ranks, cfg.total()); err != nil || len(o.ranks) == 0 || o.ranks[len(o.ranks)-1] >= cfg.total()-base || len(o.detail) > mostDigest {
		return o, false
	}
	for i := range o.ranks {
		o.ranks[i] += base
	}
	if len(words) == 3 {
		return o, true
	}
	o.program = words[3]
	for pid := range strings.SplitSeq(words[4], ",") {
		n, err := strconv.ParseUint(pid, 10, 31)
		if err != nil {
			return o, false
		}
		o.pids = append(o.pids, int(n))
	}
	return o, len(o.pids) == len(o.ranks) && len(o.program) <= mostDigest
}

// mostDigest is how long the digest of a detail is.
const mostDigest = 8
