package diagnose

import (
	"fmt"
	"time"

	"github.com/serry-dev/serry/wire"
)

// failedOverLately is how long a change of the coordinator is the verdict on a job that is well.
const failedOverLately = 10 * time.Minute

// failedOver says whether another server leads since a short while, and no rank has noticed (D-SC-14).
func (j *judge) failedOver(first *Failure) bool {
	t, here := j.status.Takeover, j.status.Counts[wire.StateConnected]+j.status.Counts[wire.StateLeft]
	return t != nil && first == nil && here == j.status.Size && j.status.Clock.Sub(t.At) <= failedOverLately
}

// TakeoverText says in one line that another server leads, and how many ranks were lost meanwhile.
func TakeoverText(t *wire.Takeover, to string, zone *time.Location, lost int) string {
	took, ranks := "", "no rank was lost"
	if t.TookSeconds > 0 {
		took = fmt.Sprintf(" (%s)", Ago(t.TookSeconds))
	}
	if lost > 0 {
		ranks = counted(lost, "rank was lost", "ranks were lost")
	}
	return fmt.Sprintf("coordinator failed over from %s to %s at %s%s; %s", t.From, to, t.At.In(zone).Format(time.TimeOnly), took, ranks)
}

// OutageText says in one line that no server leads, and until when ranks wait for one; a zero time: for as long as it takes.
func OutageText(since, until time.Time) string {
	text := fmt.Sprintf("coordinator lost since %s; ranks are kept waiting", since.Format(time.TimeOnly))
	if !until.IsZero() {
		text += " until " + until.Format(time.TimeOnly)
	}
	return text
}
