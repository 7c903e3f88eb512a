package transfer

import "github.com/serry-dev/serry/memory"

// A send from a device need not wait until its data are there. Once the work that makes them is recorded, the device will do it without
// anything more: so the other side is told, and gets memory for the first piece; and the copy of the first chunk waits on the
// device, behind that work, in a queue of its own (a park). When the data are there, the chunk is on its way without the processor
// (TR-SND-3). Nothing leaves before the data are known to be good.
//
// What is held meanwhile is little: one slot on each side, and one of few parks. A send that finds no park waits for its data. A send
// that ends while its chunk waits ends at once; its memory is kept until the device has read it.

// recorded hears that the work that makes the data of a send is recorded, or has ended.
func (o *operation) recorded(data *Event) {
	state, marks := data.recording()
	if o.peer.ops[o.ref] != o || o.defined || state != Recorded || !o.stager.recorder.marked(marks) {
		return
	}
	if o.park = o.stager.down.takePark(); o.park != nil {
		o.data = data
		o.peer.machine.Early(o.peer.now(), o.ref)
	}
}

// takePark takes the park of the send, to have something wait in it.
func (o *operation) takePark() Queue {
	q := o.park
	o.park = nil
	return q
}

// unpark gives the park back, unless something waits in it.
func (o *operation) unpark() {
	if q := o.takePark(); q != nil {
		o.stager.down.givePark(q)
	}
}

// keepCredit notes that the receiver has memory for a piece, until the send can use it.
func (o *operation) keepCredit(offset int64) {
	if len(o.credits) < intakePieces {
		o.credits = append(o.credits, offset)
	}
}

// takeCredits begins the pieces that the receiver has memory for.
func (x *staged) takeCredits() {
	list := x.op.credits
	x.op.credits = nil
	for _, offset := range list {
		x.credited(offset)
	}
}

// dataCame goes on with a send that began before its data were there.
func (x *staged) dataCame() {
	for _, p := range x.pieces {
		if p.wait == nil && p.copy == nil && p.ticket == nil {
			x.post(p)
		}
	}
	x.takeCredits()
	x.postSmall()
}

// takePark takes a queue in which a chunk can wait, or returns nil.
func (t *track) takePark() Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.mu.parks); n > 0 {
		q := t.mu.parks[n-1]
		t.mu.parks = t.mu.parks[:n-1]
		return q
	}
	if t.mu.parked >= stageParks {
		return nil
	}
	q, err := t.stager.device.Queue(Down, Normal)
	if err != nil {
		return nil // the send waits for its data, as without parks
	}
	t.mu.parked++
	return q
}

// givePark gives such a queue back. Nothing waits in it.
func (t *track) givePark(q Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.parks = append(t.mu.parks, q)
}

// copyBehind is copy for data that the device does not have yet: the first chunk waits for them in a park. The rest follows as all
// chunks do.
func (t *track) copyBehind(park Queue, data *Event, c Class, to, from memory.Region, done func(error)) *stageCopy {
	x := &stageCopy{track: t, class: c, to: to, from: from, done: done, under: 1, at: min(stageChunk, from.Len())}
	r := t.stager.recorder
	behind, err := r.Behind(park, data)
	if err == nil && behind {
		err = park.Copy(to.Slice(0, x.at), from.Slice(0, x.at))
	} else if err == nil {
		err = ErrUnsupported // the marks were of this device when they were looked at
	}
	x.over, x.err = err != nil || x.at == from.Len(), err
	copied := r.Record(park, err)
	copied.onEnd(func() {
		t.givePark(park)
		t.unparked(x, copied.Err())
	})
	return x
}

// unparked hears that the chunk of a copy that waited on the device was copied, or has failed.
func (t *track) unparked(x *stageCopy, err error) {
	t.mu.Lock()
	x.under--
	if err != nil {
		x.over = true
		if x.err == nil {
			x.err = err
		}
	}
	ended, err := x.over, x.err
	if !ended {
		t.mu.queue[x.class] = append(t.mu.queue[x.class], x)
	}
	t.mu.Unlock()
	if ended {
		x.done(err)
	}
	t.feed()
}
