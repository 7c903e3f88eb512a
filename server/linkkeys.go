package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/link"
)

// A life that is lost, or was replaced, cannot delete the keys that its links have published. The service does so
// (CL-TRN-29): other processes may all be lost with it, or have no links. To the machine and the journal this is a call like
// that of a client.

// lifeOver notes which lives a change of a task has ended. The step that changed it is under way, so their keys are
// deleted behind it, by dropLinkKeys.
func (o *owner) lifeOver(before, now serry.Life, state serry.TaskState) {
	if before != now && before.Incarnation != 0 {
		o.livesOver = append(o.livesOver, before)
	}
	if state != serry.Connected && now.Incarnation != 0 {
		o.livesOver = append(o.livesOver, now)
	}
}

// dropLinkKeys deletes the keys of lives that are over. Without such keys it changes nothing, and leaves no record.
//
// judge calls it between two steps. It cannot be done where the life ends, in changed, because a step is under
// way there. The deletion itself may let deadlines pass, by which more lives end; the next call deletes the
// keys of those. The event has no request number, so the reply finds no caller.
func (o *owner) dropLinkKeys() {
	lives := o.livesOver
	o.livesOver = nil
	for _, life := range lives {
		o.step(coord.DeleteKeyValue{Key: link.AddressKey(life)})
	}
}
