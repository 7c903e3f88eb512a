package storm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/internal/lab/history"
)

// A Report is what came of a schedule.
type Report struct {
	Seed  uint64
	Plan  string
	Wrong []string // what must not be, seen on the spot
	Trace []string // what happened, in words

	Struck map[string]int // how often each kind of fault happened
	Reigns int            // how many leaderships there were

	Keys     []history.KeyCall
	Barriers []history.BarrierCall
	Rounds   []history.RoundCall
	Lives    []history.Lifetime
	Sights   []history.Sight

	RolledBack *Rollback // or nil
}

// Faults are the kinds of faults that a schedule may have.
func Faults() (names []string) {
	for _, k := range slices.Concat(serverFaults, nodeFaults, versionFaults, []kind{stallDisk, loseHost, moveClient}, clientFaults[fatal], clientFaults[rounds], lastWords[rounds]) {
		if !slices.Contains(names, string(k)) {
			names = append(names, string(k))
		}
	}
	return names
}

// FileFaults are the kinds of faults that only schedules on real files have.
func FileFaults() []string {
	return []string{"disk", string(noRoom), string(rollBack), string(damage), string(goesOn)}
}

// Check says what is wrong with the schedule, if anything is.
func (r *Report) Check() error {
	var errs []error
	for _, w := range r.Wrong {
		errs = append(errs, errors.New(w))
	}
	k := r.kept()
	errs = append(errs,
		history.CheckKeys(k.Keys),
		history.CheckBarriers(k.Barriers),
		history.CheckRounds(k.Rounds, k.Lives),
		history.CheckWatches(k.Sights),
	)
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\nplan: %s\n%s", err, r.Plan, strings.Join(r.Trace, "\n"))
}

// named is how a report calls what belongs to an epoch: those of two epochs have nothing to do with each
// other.
func named(epoch int, name string) string { return strconv.Itoa(epoch) + ":" + name }

// keys are those that were ever called for in an epoch.
func (r *Report) keys(epoch int) (names []string) {
	seen := make(map[string]bool)
	for _, c := range r.Keys {
		if name, ok := strings.CutPrefix(c.Key, named(epoch, "")); ok && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
