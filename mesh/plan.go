package mesh

import (
	"cmp"
	"slices"

	"github.com/serry-dev/serry"
)

// A Reshard asks how an array gets from one sharding to another, over the same
// devices or others.
type Reshard struct {
	Shape        []int
	ElementBytes int
	From, To     *Sharding
	Lost         []serry.DeviceID // devices whose data is gone
	Partial      bool             // report slices that no device holds in Plan.Missing, instead of failing
}

// A Plan is the least that must be copied. Every byte of every destination
// shard is written exactly once; bytes that a device already has come from
// itself.
type Plan struct {
	Moves   []Move // by source block, then by destination
	Missing []Gap  // only if Reshard.Partial

	from, to *Mesh
	first    []int32          // holders of tile t are holders[first[t]:first[t+1]]
	holders  []serry.DeviceID // that are not lost
}

// Holders lists the devices that could serve a move of the plan, its source
// among them. Another one can step in with the same offsets and pattern. The
// list is shared; it must not be changed.
func (p *Plan) Holders(m Move) []serry.DeviceID { return p.holders[p.first[m.tile]:p.first[m.tile+1]] }

// A Move copies one strided range from the shard of one device into the shard
// of another. From equals To where the device has the bytes already.
type Move struct {
	From, To             serry.DeviceID
	FromOffset, ToOffset int      // bytes into the shards
	Pattern              *Pattern // shared by many moves

	tile int // the source block
}

// A Gap is a slice that a device should get and no device is left to give.
type Gap struct {
	To    serry.DeviceID
	Index Index
}

// Block numbers the part of the array that the source of the move holds. Moves of one plan with the same block, offset in the
// source and pattern copy the same bytes.
func (m Move) Block() int { return m.tile }

// Apply copies the bytes of the move between two whole shards.
func (m Move) Apply(to, from []byte) error {
	if err := cmp.Or(fits(m.To, len(to), m.ToOffset, m.Pattern.span(m.Pattern.ToStrides)),
		fits(m.From, len(from), m.FromOffset, m.Pattern.span(m.Pattern.FromStrides))); err != nil {
		return err
	}
	m.Pattern.copy(to[m.ToOffset:], from[m.FromOffset:])
	return nil
}

func fits(device serry.DeviceID, have, offset, span int) error {
	if offset < 0 || span < 0 || offset > have-span {
		return errorf(ErrInvalid, "range of %d bytes at %d does not fit the %d bytes of device %d", span, offset, have, device)
	}
	return nil
}

// maxMoves bounds a plan. Where more are needed, let every task plan its own
// part with [Reshard.PlanFor].
const maxMoves = 1 << 23

// Plan works out all moves. Where several devices hold a slice, one is taken
// that belongs to the task of the destination if there is such a one, and among
// equals the one with the fewest bytes to send so far; so the holders of a slice
// that serve other tasks differ by at most one range.
func (r Reshard) Plan() (*Plan, error) {
	p, err := r.prepare()
	if err != nil {
		return nil, err
	}
	if n := p.countMoves(); n > maxMoves {
		return nil, errorf(ErrInvalid, "the plan has %d ranges, at most %d are planned at once: use PlanFor, task by task", n, maxMoves)
	} else {
		p.plan.Moves = make([]Move, 0, n)
	}
	for tile := range p.from.tiles {
		p.serve(tile, nil)
	}
	return p.finish()
}

// PlanFor works out the moves that read from or write to devices of one task:
// exactly those that [Reshard.Plan] has for it, without the rest.
func (r Reshard) PlanFor(task serry.TaskIndex) (*Plan, error) {
	p, err := r.prepare()
	if err != nil {
		return nil, err
	}
	if err := p.serveTask(task); err != nil {
		return nil, err
	}
	return p.finish()
}

// side is one sharding as the planner sees it: blocks ("tiles") in row-major
// order, and which devices hold each.
type side struct {
	placement placement
	tiles     int
	stride    []int   // of block numbers
	tileOf    []int32 // tile of each position in mesh order
	first     []int32 // holders of tile t are holders[first[t]:first[t+1]]
	holders   []int32 // positions; by task, then in mesh order
}

func newSide(s *Sharding, shape []int, lost func(serry.DeviceID) bool) (side, error) {
	p, err := s.fullPlacement(shape)
	if err != nil {
		return side{}, err
	}
	out := side{placement: p, tiles: product(p.ways), stride: strides(p.ways), tileOf: make([]int32, s.mesh.size)}
	for d, step := range out.stride {
		for at, block := range p.numbers(d) {
			out.tileOf[at] += block * int32(step)
		}
	}
	out.collect(s.mesh, lost)
	return out, nil
}

// collect sorts the places that are not lost by tile, then task.
func (s *side) collect(m *Mesh, lost func(serry.DeviceID) bool) {
	alive := make([]int32, 0, len(s.tileOf))
	for at, id := range m.ids {
		if !lost(id) {
			alive = append(alive, int32(at))
		}
	}
	slices.SortStableFunc(alive, func(a, b int32) int { return int(m.tasks[a] - m.tasks[b]) })
	s.first = make([]int32, s.tiles+1)
	for _, at := range alive {
		s.first[s.tileOf[at]+1]++
	}
	for t := range s.tiles {
		s.first[t+1] += s.first[t]
	}
	next := slices.Clone(s.first)
	s.holders = make([]int32, len(alive))
	for _, at := range alive {
		t := s.tileOf[at]
		s.holders[next[t]] = at
		next[t]++
	}
}

func (s *side) held(tile int) []int32 { return s.holders[s.first[tile]:s.first[tile+1]] }
