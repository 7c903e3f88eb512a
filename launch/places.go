package launch

import (
	"slices"
	"syscall"
)

// places says which host stands for which node of a job. A host has the number that its launcher was
// given; those beyond the last node are spares. A node whose host was lost is taken over by a spare.
type places struct {
	hands   map[int]hand       // of all hosts that are here, by their number
	hostOf  []int              // by node: number of its host, or one of the two below
	leaving map[int]*departure // hosts that are about to leave, and take no more tasks
	taskOn  map[int]int        // by task: the host it was started on last in this attempt
	waiting []seat             // tasks that have no host yet

	byIdentity bool // hosts get nodes by what they are, not by their number
}

// A departure is that of a host, which ends all its tasks.
type departure struct {
	charged bool           // a restart was charged for it
	signal  syscall.Signal // that its launcher was told to end by; 0: the host is lost
}

const (
	notYet = -1 // its own host has not come yet
	vacant = -2 // its host was lost; the next host that comes may have it
)

func newPlaces(nodes int, here hand) places {
	p := places{hands: map[int]hand{0: here}, hostOf: make([]int, nodes), leaving: make(map[int]*departure), taskOn: make(map[int]int)}
	for i := range p.hostOf[1:] {
		p.hostOf[i+1] = notYet
	}
	return p
}

func (p *places) has(host int) bool { return p.hands[host] != nil }

// is says whether a host is here in the life that has this hand.
func (p *places) is(host int, h hand) bool { return h != nil && p.hands[host] == h }

// retire takes note that a host is about to leave, told by a signal, or 0 where it is lost.
func (p *places) retire(host int, told syscall.Signal) {
	if p.leaving[host] == nil {
		p.leaving[host] = &departure{signal: told}
	}
}

// find is the hand for a task, or nil if there is none now, and then the task is one that waits. It
// may take a spare.
func (p *places) find(s seat) (h hand, took bool) {
	host := &p.hostOf[s.Node]
	if *host == vacant || p.leaving[*host] != nil {
		*host = vacant
		if spare, ok := p.spare(); ok {
			*host, took = spare, true
		}
	}
	if h = p.hands[*host]; h == nil {
		p.waiting = append(p.waiting, s)
	} else {
		p.taskOn[s.Task] = *host
	}
	return h, took
}

// spare finds the lowest host that stands for no node.
func (p *places) spare() (host int, ok bool) {
	if idle := p.idle(); len(idle) > 0 {
		return idle[0], true
	}
	return 0, false
}

// add takes a host in, and returns the tasks that may now find a place.
func (p *places) add(host int, h hand) []seat {
	p.hands[host] = h
	delete(p.leaving, host)
	p.sit(host)
	return p.drop()
}

// sit lets a host stand for the node of its number, unless another host does.
func (p *places) sit(host int) {
	if !p.byIdentity && host < len(p.hostOf) && p.hostOf[host] < 0 {
		p.hostOf[host] = host
	}
}

// assignByIdentity takes the nodes from all hosts, to be given to them by what they are.
func (p *places) assignByIdentity() {
	p.byIdentity = true
	for node := range p.hostOf {
		p.hostOf[node] = notYet
	}
}

// free lists the nodes without a host, idle the hosts without a node.
func (p *places) free() []int {
	var all []int
	for node, host := range p.hostOf {
		if host < 0 {
			all = append(all, node)
		}
	}
	return all
}

func (p *places) idle() []int {
	var all []int
	for _, host := range sortedKeys(p.hands) {
		if !slices.Contains(p.hostOf, host) && p.leaving[host] == nil {
			all = append(all, host)
		}
	}
	return all
}

// remove takes a host out.
func (p *places) remove(host int) {
	delete(p.hands, host)
	delete(p.leaving, host)
	for node, h := range p.hostOf {
		if h == host {
			p.hostOf[node] = vacant
		}
	}
}

// drop returns the tasks that wait for a host, and forgets them.
func (p *places) drop() []seat {
	all := p.waiting
	p.waiting = nil
	return all
}

// complete says whether no task waits for a host.
func (p *places) complete() bool { return len(p.waiting) == 0 }

// vacant is the first node without a host.
func (p *places) vacant() int {
	for node, h := range p.hostOf {
		if h < 0 {
			return node
		}
	}
	return 0
}

// each does something on every host that stands for a node.
func (p *places) each(f func(hand)) {
	for _, host := range p.hostOf {
		if h := p.hands[host]; h != nil {
			f(h)
		}
	}
}
