package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file has the words for hangs; all that people read of one is made here (D-CLI-2).

// Text says in one line which ranks are waited for, since when, and by whom. begun is what a wall clock showed at time 0
// of the evidence.
func (h *Hang) Text(now time.Duration, begun time.Time) string {
	who, n := rankRanges(h.numbers()), len(h.Ranks)
	since := begun.Add(h.Since).Format(time.TimeOnly)
	lasts := Ago((now - h.Since).Seconds())
	waiters, them := h.waiters(), verb(n, "it", "them")
	wait := verb(h.waiting(), "waits", "wait")
	switch h.Kind {
	case HangDeadlock:
		return fmt.Sprintf("deadlock since %s: %s", since, h.crossing())
	case HangDiffer:
		return h.differs()
	case HangIdle:
		return fmt.Sprintf("no failure; %s %s still since %s (%s), and no rank is known to wait for another", waiters, verb(h.waiting(), "stands", "stand"), since, lasts)
	case HangStopped:
		return fmt.Sprintf("%s %s stopped since %s (SIGSTOP); %s %s for %s", who, verb(n, "is", "are"), since, waiters, wait, them)
	case HangLeaving:
		if h.Ranks[0].Class == ClassGone {
			return fmt.Sprintf("%s exited at %s with code 0; %s %s for %s%s", who, since, waiters, wait, them, h.where())
		}
		return fmt.Sprintf("%s %s to leave since %s (%s) while %s %s%s", who, verb(n, "wants", "want"), since, lasts, waiters, wait, h.where())
	case HangCompiling:
		return fmt.Sprintf("no failure; %s %s while %s %s (%s)", waiters, wait, who, verb(n, "compiles", "compile"), lasts)
	case HangIO:
		return fmt.Sprintf("%s %s slow, not stuck: %s for %s; %s %s", who, verb(n, "is", "are"), h.rates(), lasts, waiters, wait)
	case HangBusy:
		return fmt.Sprintf("%s %s been busy in %s for %s; %s %s for %s", who, verb(n, "has", "have"), h.innermost(), lasts, waiters, wait, them)
	case HangSlow:
		return fmt.Sprintf("no failure; %s %s for %s%s since %s", waiters, wait, who, h.where(), since)
	case HangStorage:
		return fmt.Sprintf("%s %s for storage since %s (%s); %s %s for %s%s", who, verb(n, "waits", "wait"), since, lasts, waiters, wait, them, h.where())
	}
	return fmt.Sprintf("%s %s %s since %s (%s); %s %s for %s%s", who, verb(n, "is", "are"), h.Stage, since, lasts, waiters, wait, them, h.where())
}

// A HangLine is a line below the text of a hang: a word that says what it is about, and the rest.
type HangLine struct {
	Word string `json:"word"`
	Text string `json:"text"`
}

// Lines are what the text rests on, in a fixed order: at, process, storage, waiting, transfer, clique, output, host, grade, next (D-CLI-1).
// begun is as in [Hang.Text].
func (h *Hang) Lines(begun time.Time) []HangLine {
	var lines []HangLine
	add := func(word, text string) {
		if text != "" {
			lines = append(lines, HangLine{word, text})
		}
	}
	if len(h.Ranks) > 0 {
		first := h.Ranks[0]
		add("at", first.Condition.At)
		if first.PID != 0 {
			add("process", first.process())
		}
		add("storage", first.File)
	}
	for _, w := range h.Waits {
		if w.At != "" {
			add("waiting", fmt.Sprintf("%s at %s", rankRanges(w.Ranks), w.At))
		}
	}
	for _, w := range h.Waits[:min(len(h.Waits), transfersShown)] {
		if w.Transfer.is() {
			add("transfer", w.Transfer.text(begun))
		}
	}
	if len(h.Waits) > 0 {
		for _, text := range h.Waits[0].Collective.lines() {
			add("clique", text)
		}
	}
	add("output", h.printed())
	for _, text := range h.hosts() {
		add("host", text)
	}
	add("grade", fmt.Sprintf("%s: %s", h.Grade, h.reason()))
	add("next", h.next())
	return lines
}

// printed says whether a rank that leaves, or has left, has printed why.
func (h *Hang) printed() string {
	if h.Kind != HangLeaving || h.Ranks[0].PID == 0 {
		return ""
	}
	if h.Ranks[0].Raised {
		return fmt.Sprintf("rank %d has printed an exception", h.Ranks[0].Rank)
	}
	return fmt.Sprintf("no exception in the output of rank %d", h.Ranks[0].Rank)
}

func (h *Hang) numbers() []int {
	var all []int
	for _, r := range h.Ranks {
		all = append(all, r.Rank)
	}
	slices.Sort(all)
	return all
}

// process says what the process of a rank does.
func (r *RankEvidence) process() string {
	text := fmt.Sprintf("pid %d", r.PID)
	if r.Host != "" {
		text += " on " + r.Host
	}
	if r.Doing != "" {
		text += ": " + r.Doing
	}
	switch r.Class {
	case ClassStatic, ClassWaiting:
		text += ", no CPU, no I/O"
	case ClassZombie:
		text += ", its main thread has ended"
	}
	if r.Traced {
		text += ", a debugger is attached"
	}
	if r.Phase != "" {
		text += ", in its phase " + r.Phase
	}
	if r.Checkpoint {
		text += ", it saves a checkpoint"
	}
	return text
}

// waiting is how many ranks wait.
func (h *Hang) waiting() int {
	n := 0
	for _, w := range h.Waits {
		n += w.Count
	}
	return n
}

// waiters names the ranks that wait, or counts them where not all are known.
func (h *Hang) waiters() string {
	var all []int
	for _, w := range h.Waits {
		if len(w.Ranks) != w.Count {
			return counted(h.waiting(), "rank", "ranks")
		}
		all = append(all, w.Ranks...)
	}
	slices.Sort(all)
	return rankRanges(all)
}

// where is what the ranks wait in or at.
func (h *Hang) where() string {
	if len(h.Waits) == 0 {
		return ""
	}
	return " " + h.Waits[0].place()
}

// crossing says which ranks wait where in a deadlock.
func (h *Hang) crossing() string {
	var parts []string
	for i, w := range h.Waits {
		wait := ""
		if i == 0 {
			wait = " " + verb(w.Count, "waits", "wait")
		}
		parts = append(parts, fmt.Sprintf("%s%s %s", rankRanges(w.Ranks), wait, w.place()))
	}
	return strings.Join(parts, ", ")
}

// rates says how fast ranks read and write.
func (h *Hang) rates() string {
	var rate uint64
	for _, r := range h.Ranks {
		rate = max(rate, r.Rate)
	}
	return fmt.Sprintf("reading and writing %s a second", Bytes(rate))
}

// Bytes is a number of bytes the way people say it: "30 MB".
func Bytes(n uint64) string {
	units := []string{"bytes", "kB", "MB", "GB", "TB"}
	at, value := 0, float64(n)
	for value >= 1000 && at < len(units)-1 {
		value /= 1000
		at++
	}
	if at == 0 || value >= 10 {
		return fmt.Sprintf("%.0f %s", value, units[at])
	}
	return fmt.Sprintf("%.1f %s", value, units[at])
}

// innermost is the innermost function of the first rank.
func (h *Hang) innermost() string {
	at, _, _ := strings.Cut(h.Ranks[0].Condition.At, " < ")
	return at
}

// reason says what the grade rests on.
func (h *Hang) reason() string {
	n, ranks := h.waiting(), verb(len(h.Ranks), "one rank", "ranks")
	first := HangWait{}
	if len(h.Waits) > 0 {
		first = h.Waits[0]
	}
	switch {
	case first.Transfer.is() && h.Kind != HangStopped:
		return first.Transfer.reason()
	case first.Collective.is() && h.Kind != HangStopped:
		return first.Collective.reason()
	case h.Kind == HangDeadlock:
		return "the service knows who has arrived where"
	case first.Barrier != "":
		return "the service knows who has arrived"
	case h.Kind == HangStopped:
		return "the kernel says so"
	case h.Kind == HangIdle:
		return "they may have nothing to do"
	case h.Grade == Sure:
		return h.sureBy()
	case h.Kind == HangBusy && h.Grade == Likely:
		return "the job has made no step for long, and this rank computes"
	case h.Grade == Likely && n > 1:
		return fmt.Sprintf("%d ranks in one wait, %s outside it", n, ranks)
	case h.Grade == Likely:
		return "one of two ranks waits, the other does not"
	}
	return fmt.Sprintf("%s in a wait, %s outside it", counted(n, "rank", "ranks"), ranks)
}

// sureBy says what is sure about a rank that others wait for in a computation.
func (h *Hang) sureBy() string {
	switch first := h.Ranks; {
	case h.Kind == HangIO:
		return "the kernel counts what it reads and writes"
	case h.Kind == HangCompiling:
		return "its stack is in the compiler of jax"
	case len(first) > 0 && first[0].Class == ClassGone:
		return "the kernel says how its process ended"
	}
	return "the service knows who wants to leave"
}

// next says what to do.
func (h *Hang) next() string {
	transfer := len(h.Waits) > 0 && h.Waits[0].Transfer.is()
	collective := len(h.Waits) > 0 && h.Waits[0].Collective.is()
	if len(h.Ranks) == 0 && transfer {
		return "serry why --transfers: each of these ranks waits for a half of a transfer that another one does not post"
	}
	if h.Kind == HangDiffer || len(h.Ranks) == 0 && collective {
		return "serry why --collectives: the ranks do not call the same operations in the same order"
	}
	if h.Kind == HangIdle {
		return ""
	}
	if len(h.Ranks) == 0 {
		return "compare what leads the ranks to these barriers: they do not do the same things in the same order"
	}
	first := h.Ranks[0]
	switch {
	case h.Kind == HangStopped && first.PID != 0:
		return fmt.Sprintf("kill -CONT %d", first.PID)
	case h.Kind == HangLeaving:
		return fmt.Sprintf("the output of rank %d says why it ended; compare how many steps each rank takes", first.Rank)
	case h.Kind == HangStorage:
		return "see whether the file system answers on that host"
	case transfer && (h.Stage == Stalled || h.Stage == Stuck):
		return fmt.Sprintf("serry why --transfers · serry stacks %d --full", first.Rank)
	case collective && (h.Stage == Stalled || h.Stage == Stuck):
		return fmt.Sprintf("serry why --collectives · serry stacks %d --full", first.Rank)
	case h.Stage == Stalled || h.Stage == Stuck || h.Kind == HangBusy:
		return fmt.Sprintf("serry stacks %d --full", first.Rank)
	}
	return ""
}

// Ranks is what people call several ranks, sorted: "rank 3", "ranks 0-2,5".
func Ranks(ranks []int) string { return rankRanges(slices.Sorted(slices.Values(ranks))) }

// rankRanges is Ranks for numbers that are sorted.
func rankRanges(ranks []int) string {
	if len(ranks) == 0 {
		return "no rank"
	}
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + ranges(ranks)
}

// ranges are sorted numbers as runs, as many as a line has room for.
func ranges(numbers []int) string {
	var runs []run
	for _, n := range numbers {
		if last := len(runs) - 1; last >= 0 && runs[last].last+1 == n {
			runs[last].last++
		} else {
			runs = append(runs, run{n, n})
		}
	}
	var parts []string
	rest := 0
	for i, r := range runs {
		if i < rangesListed {
			parts = append(parts, r.String())
		} else {
			rest += r.last - r.first + 1
		}
	}
	text := strings.Join(parts, ",")
	if rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
