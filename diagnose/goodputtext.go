package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/wire"
)

// This file has all words about stragglers and goodput, for serry status, top, why and the closing report of run.

const (
	causesNamed = 3     // that a text names
	leastShare  = 0.005 // of all time, that a cause has to be worth a word
)

// GoodputText says how much of the time of a job was of use, and what the rest was lost to (D-GP-7, D-GP-8).
func GoodputText(g *wire.GoodputStatus) string {
	if g == nil || g.WallSeconds <= 0 {
		return "unknown: no steps reported (see serry help steps)"
	}
	text := fmt.Sprintf("%.0f %% of %s, at step %d", 100*g.ProductiveSeconds/g.WallSeconds, Ago(g.WallSeconds), g.Step)
	if g.Phase != "" {
		text += ", in " + g.Phase
	}
	causes := slices.SortedFunc(maps.Keys(g.LostSeconds), func(a, b string) int {
		return cmp.Or(cmp.Compare(g.LostSeconds[b], g.LostSeconds[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, c := range causes {
		if g.LostSeconds[c] >= leastShare*g.WallSeconds && len(parts) < causesNamed {
			parts = append(parts, fmt.Sprintf("%s to %s", Ago(g.LostSeconds[c]), c))
		}
	}
	if len(parts) == 0 {
		return text
	}
	return text + "; lost " + strings.Join(parts, ", ")
}

// StragglerText names the rank or the host that holds the others up, and what that costs the job (D-GP-6).
func StragglerText(s wire.Status, one wire.StragglerStatus) string {
	who := "host " + one.Host
	if one.Task != "" {
		who = rankIn(s, one.Task)
	}
	what := "barriers of " + one.Class
	if one.Class == goodput.StepClass {
		what = "steps"
	}
	return fmt.Sprintf("%s is %.0f %% slower than the others over the last %d %s (cost %s of %s, %.1f %% of the time)",
		who, 100*one.Slower, one.Places, what, Ago(one.CostSeconds), Ago(one.OfSeconds), 100*one.Share)
}

// rankIn is what people call a task of a status.
func rankIn(s wire.Status, task string) string {
	if _, number, ok := strings.Cut(task, "/"); ok && len(s.Jobs) == 1 {
		return "rank " + number
	}
	return task
}

// StragglerLines are texts about the first few stragglers.
func StragglerLines(s wire.Status, most int) []string {
	var lines []string
	for i, one := range s.Stragglers {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more are slow", len(s.Stragglers)-i))
			break
		}
		lines = append(lines, StragglerText(s, one))
	}
	return lines
}
