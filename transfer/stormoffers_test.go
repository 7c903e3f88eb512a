package transfer_test

import (
	"bytes"
	"context"
	"time"

	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/offer"
)

// stormPull is the deadline of pulls: long enough for all that can go wrong meanwhile, and over when the end is judged.
const stormPull = 60 * time.Second

// A published is an offer of a storm.
type published struct {
	id       uint64
	task     int
	sizes    []int
	withdraw time.Duration // after which it is withdrawn, or 0
	expire   time.Duration // or 0: it stays

	owner *stormLife // that has offered it, or nil; guarded by the lock of the storm
}

// A pulled is a pull of one buffer of an offer, or a part of one.
type pulled struct {
	*published
	index  int
	part   bool
	mine   bool          // into memory of the program
	cancel time.Duration // after which it is cancelled, or 0

	// Guarded by the lock of the storm.
	owner  *stormLife
	from   *stormLife // that it pulls from
	err    error
	ended  bool
	memory []byte // that was written over when it had ended, or nil
}

// planOffer draws an offer and pulls of it, before and after it is there.
func (s *storm) planOffer(id uint64) {
	d := s.draw
	o := &published{id: id, task: d.IntN(s.tasks)}
	for range 1 + d.IntN(3) {
		o.sizes = append(o.sizes, []int{100, 8<<10 + 4, 200 << 10, 1 << 20}[d.IntN(4)])
	}
	switch gone := time.Duration(1+d.IntN(6000)) * time.Millisecond; d.IntN(4) {
	case 0:
		o.withdraw = gone
	case 1:
		o.expire = gone
	}
	s.mu.offers = append(s.mu.offers, o)
	at := time.Duration(d.IntN(8000)) * time.Millisecond
	s.work.Go(func() {
		<-time.After(at)
		s.publish(o)
	})
	for range 2 + d.IntN(4) {
		p := &pulled{published: o, index: d.IntN(len(o.sizes)), part: d.IntN(3) == 0, mine: d.IntN(2) == 0}
		task := (o.task + 1 + d.IntN(s.tasks-1)) % s.tasks
		if d.IntN(5) == 0 {
			p.cancel = time.Duration(1+d.IntN(2000)) * time.Millisecond
		}
		delay := max(0, at+time.Duration(d.IntN(4000)-1000)*time.Millisecond)
		s.work.Go(func() {
			<-time.After(delay)
			s.pull(p, task)
		})
	}
}

// key is what the content of a buffer of an offer is made of.
func (o *published) key(index int) uint64 { return 1<<50 + o.id*10 + uint64(index) }

func (o *published) token() transfer.Token { return transfer.Token{byte(1 + o.id)} }

// publish offers buffers, and gives them away. Their memory is written over as soon as the engine gives it back: a consumer would see
// that.
func (s *storm) publish(o *published) {
	l := s.present(o.task)
	if l == nil {
		return
	}
	var buffers []*transfer.Buffer
	for i, size := range o.sizes {
		data := fill(size, o.key(i))
		m := transfer.Memory{Region: memory.Of(data), Device: l.device, Free: func() { scribble(data) }}
		b, err := l.Pool().Buffer(bytesSpec(size), m)
		if err == nil {
			err = b.Define(l.Pool().Ready())
		}
		if err != nil {
			s.wrong("buffer of an offer: %v", err)
			return
		}
		buffers = append(buffers, b)
		defer b.Delete()
	}
	options := transfer.OfferOptions{Times: offer.Unlimited, Expire: o.expire, Token: o.token()}
	s.mu.Lock()
	x, err := l.Offer(s.ctx, offer.ID(o.id), buffers, options)
	if err == nil {
		o.owner = l
	}
	s.mu.Unlock()
	if err != nil || o.withdraw == 0 {
		return
	}
	s.work.Go(func() {
		<-time.After(o.withdraw)
		x.Withdraw()
	})
}

// pull pulls from the present life of the task that offers, and waits for the end.
func (s *storm) pull(p *pulled, task int) {
	l, from := s.present(task), s.present(p.task)
	if l == nil || from == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, stormPull, errStorm)
	defer cancel()
	if p.cancel > 0 {
		stop := time.AfterFunc(p.cancel, cancel)
		defer stop.Stop()
	}
	want, data := transfer.Want{Index: p.index, Device: l.device}, fill(p.sizes[p.index], p.key(p.index))
	if p.part {
		want.View = transfer.View{Offset: 3, Run: 1, Counts: []int64{int64(len(data)) / 2}, Strides: []int64{2}}
		if want.View.Counts[0] = (int64(len(data)) - 3) / 2; len(data) > 100<<10 {
			want.View = transfer.View{Offset: 3, Run: int64(len(data)) / 2}
		}
		data = viewed(data, want.View)
	}
	want.Spec = bytesSpec(len(data))
	if p.mine {
		b, err := l.Pool().Buffer(want.Spec, transfer.Memory{Region: memory.Of(make([]byte, len(data))), Device: l.device})
		if err != nil {
			s.wrong("buffer of a pull: %v", err)
			return
		}
		want.Buffer = b
	}
	g, err := l.Pull(ctx, transfer.Handle{From: from.life, ID: offer.ID(p.id), Token: p.token()}, []transfer.Want{want})
	if err != nil {
		if want.Buffer != nil {
			want.Buffer.Delete()
		}
		return
	}
	s.mu.Lock()
	p.owner, p.from = l, from
	s.mu.pulls = append(s.mu.pulls, p)
	s.mu.Unlock()
	<-g.Done().Done()
	s.judgePull(p, g.Items()[0], data)
}

// judgePull looks at a pull that has just ended, and writes over its memory.
func (s *storm) judgePull(p *pulled, item transfer.Item, want []byte) {
	err := item.Event.Err()
	use, useErr := item.Buffer.Use(context.Background())
	if useErr != nil {
		s.wrong("%v: the buffer of pull %d: %v", p.owner.life, p.id, useErr)
		return
	}
	memory := p.owner.bytes(use.Memory())
	use.Drop()
	if err == nil && !bytes.Equal(memory, want) {
		s.wrong("%v: pull %d of %d bytes has other content", p.owner.life, p.id, len(want))
	}
	scribble(memory)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.err, p.ended, p.memory = err, true, memory
}

// judgePulls looks at pulls some time after nothing went wrong any more. One has ended well if the offer was made by the life that it
// pulls from, the offer stayed, the puller did not give up, and neither process was replaced.
func (s *storm) judgePulls() {
	s.mu.Lock()
	pulls := s.mu.pulls
	s.mu.Unlock()
	for _, p := range pulls {
		s.mu.Lock()
		made, ended, err := p.published.owner, p.ended, p.err
		s.mu.Unlock()
		switch {
		case p.owner.over.Load():
		case !ended:
			s.wrong("%v: pull %d from %v has not ended", p.owner.life, p.id, p.from.life)
		case err == nil || p.cancel > 0 || p.from.over.Load() || made != p.from || p.withdraw > 0 || p.expire > 0:
		default:
			s.wrong("%v: pull %d from %v failed, and nothing spoke against it: %v", p.owner.life, p.id, p.from.life, err)
		}
	}
}
