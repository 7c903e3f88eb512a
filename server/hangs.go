package server

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
)

// verdicts are what was wrong with the job since this server leads, for metrics (D-GP-9): first failures, which the machine
// notes, and ranks that keep the others waiting, which the launcher of the job tells under [wire.HangKey]. They belong to the owner.
//
// The server draws no conclusion here. Package diagnose does, in the launcher, which writes a report again whenever it has
// changed. stage is what a gauge shows of the present wait, count what counters show of all of them. The difficulty is to count
// each wait once, although it is reported many times.
type verdicts struct {
	failed bool // of the present epoch the first failure is counted
	told   bool // a task of it was told to end: barriers that fail by that are no failures
	stage  int  // of the present wait; an index of hangStages
	last   hangSummary
	count  map[verdict]uint64
}

// A verdict is what verdicts are told apart by.
type verdict struct{ kind, grade string }

// A hangSummary is the part of a report about a wait that is counted. Package diagnose has the whole.
type hangSummary struct {
	Kind  string        `json:"kind"`
	Stage string        `json:"stage"`
	Grade string        `json:"grade"`
	Since time.Duration `json:"since"`
}

// hangStages are the stages of a wait, in the order in which they come (D-HG-4).
var hangStages = []string{"", "late", "stalled", "stuck"}

// stalledStage is the first one in which a wait is counted: ranks that are late are nothing unusual.
const stalledStage = 2

// The words that a verdict may have. Any task of the job can write the key, and must not be able to make up rows of metrics.
var (
	hangKinds  = []string{"still", "stopped", "leaving", "storage", "deadlock", "compiling", "io", "busy", "slow"}
	hangGrades = []string{"sure", "likely", "possible"}
)

const (
	failedVerdict = "failed" // the kind of a first failure
	sureGrade     = "sure"
)

// opened begins a new epoch, whose keys are not those of the former one.
func (v *verdicts) opened() { v.failed, v.told, v.stage, v.last = false, false, 0, hangSummary{} }

// waits takes what the launcher says. What is no report is the program's own affair.
//
// A report without a wait says that the wait is over. A report with a word that is not known here changes nothing, not even the
// stage: it is of a launcher of another version, or of a task that makes words up.
func (v *verdicts) waits(value []byte) {
	var r struct {
		Hang *hangSummary `json:"hang"`
	}
	if json.Unmarshal(value, &r) != nil {
		return
	}
	if r.Hang == nil {
		v.stage = 0
		return
	}
	h := *r.Hang
	stage := slices.Index(hangStages, h.Stage)
	if stage < 0 || !slices.Contains(hangKinds, h.Kind) || !slices.Contains(hangGrades, h.Grade) {
		return
	}
	// A wait is told of again when its stage changes, and when other ranks wait, too. It counts once.
	if v.stage = stage; stage >= stalledStage && (v.last.Kind != h.Kind || (v.last.Since-h.Since).Abs() > sameWait) {
		v.last = h
		v.add(verdict{h.Kind, h.Grade})
	}
}

// sameWait is by how much the beginning of a wait may change while it is one and the same: it is drawn from samples.
const sameWait = 5 * time.Second

// noted takes what the machine noted. Of an epoch the first failure counts, since the others follow from it; that a task ended because
// it was told to is none (D-RC-3).
//
// A launcher that has seen one task fail tells the others to end. Their ends are no failures. Nor are the barriers that fail
// because of them, so from then on a barrier that fails is not counted; a task that fails by itself still is.
func (v *verdicts) noted(n coord.Note) {
	switch {
	case v.failed || !isFailure(n):
	case strings.Contains(n.Err.Error(), detect.ToldToEnd):
		v.told = true
	case !v.told || n.Barrier == "":
		v.failed = true
		v.add(verdict{failedVerdict, sureGrade})
	}
}

func (v *verdicts) add(what verdict) {
	if v.count == nil {
		v.count = make(map[verdict]uint64)
	}
	v.count[what]++
}
