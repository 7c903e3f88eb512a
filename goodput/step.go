package goodput

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"
)

// StepKeys is the directory of the keys under which ranks report their steps: serry/step/3, or serry/step/worker/3 where
// the service has several jobs. Their values are read by [ReadStep].
const StepKeys = "serry/step/"

// EnvStepFile is the variable that names the file to which the program of a rank may write its step.
const EnvStepFile = "SERRY_STEP_FILE"

// A Step is how far a rank says that it has come.
type Step struct {
	Number int64
	Phase  string // what the rank does after that step beside training, such as "checkpoint"; or empty

	// Limit is how long the phase may take, in whole seconds: a launcher that reads the step from a file calls the rank stuck no
	// sooner (D-GP-2). 0: the program does not say.
	Limit time.Duration
}

const (
	// maxStep is the greatest number of a step: the greatest that every language has as a number. More is garbage.
	maxStep = 1 << 53

	// MaxStepText bounds the text of a report, in bytes, and maxPhase the name of a phase in it.
	MaxStepText = 64
	maxPhase    = 32

	maxLimit = 7 * 24 * time.Hour // of a phase: more is garbage
)

// ErrStep says that a text is no report of a step.
var ErrStep = errors.New("no step: want a number, and the name of a phase or nothing")

// ReadStep reads a report: a decimal number and, with spaces between them, the name of a phase and its limit in seconds; or 8 bytes
// with the number, the lowest first. A text that is neither is an error: a file may be read while it is written.
func ReadStep(text []byte) (Step, error) {
	if len(text) > MaxStepText {
		return Step{}, ErrStep
	}
	if s, ok := readDecimal(string(text)); ok {
		return s, nil
	}
	if len(text) != 8 {
		return Step{}, ErrStep
	}
	n := binary.LittleEndian.Uint64(text)
	if n > maxStep {
		return Step{}, ErrStep
	}
	return Step{Number: int64(n)}, nil
}

// readDecimal reads the form for people and scripts.
func readDecimal(text string) (Step, bool) {
	number, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	phase, limit, limited := strings.Cut(rest, " ")
	seconds, err := strconv.ParseInt(limit, 10, 32)
	if limited && (err != nil || strings.Trim(phase, "0123456789_-") == "" || limit[0] == '+' || seconds <= 0 || seconds > int64(maxLimit/time.Second)) {
		return Step{}, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > maxStep || number[0] == '+' || !isPhase(phase) {
		return Step{}, false
	}
	return Step{Number: n, Phase: phase, Limit: time.Duration(seconds) * time.Second}, true
}

// isPhase says whether a text may be the name of a phase, or none: metrics have it as a label.
func isPhase(name string) bool {
	return len(name) <= maxPhase && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// String is the report as [ReadStep] reads it.
func (s Step) String() string {
	text := strings.TrimSuffix(strconv.FormatInt(s.Number, 10)+" "+s.Phase, " ")
	if s.Limit > 0 {
		text += " " + strconv.FormatInt(int64(s.Limit/time.Second), 10)
	}
	return text
}
