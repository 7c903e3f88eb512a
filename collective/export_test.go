package collective

import "github.com/serry-dev/serry/link"

// ParseKey and Bytes are how keys cross the wire.
func ParseKey(b []byte) (*Key, error) { return parseKey(b) }

// Bytes is the canonical form of the key.
func (k *Key) Bytes() []byte { return k.append(nil) }

// ParseError reads a notice.
func ParseError(b []byte) (*Error, error) { return parseError(b) }

// Bytes is the notice as it is sent.
func (e *Error) Bytes() []byte { return e.append(nil) }

// Algorithm is how a rank carries an operation out.
func Algorithm(c *Comm, o Op) string {
	k, err := o.prepare(c)
	if err != nil {
		return err.Error()
	}
	a, _ := k.choice()
	return string(a)
}

// Stream is the number that the frames of the clique have.
func (c *Comm) Stream() uint64 { return c.clique.stream }

// NextName is the name of the first message of an operation with a rank, if it is the next that this rank begins.
func NextName(c *Comm, o Op, peer int, receive bool) link.Header {
	k, err := o.prepare(c)
	if err != nil {
		panic(err)
	}
	seq := c.lastSeq() + 1
	if k.peer >= 0 {
		seq = c.mu.pairs[pair{k.peer, k.sends}] + 1 | transferBit
	}
	return c.clique.header(message{op: &operation{comm: c, word: word(seq, k.description)}, peer: peer}, receive)
}

// Shares says whether operations of the clique go through shared memory.
func Shares(c *Comm) bool {
	x := c.clique.sharing
	if x == nil {
		return false
	}
	select {
	case <-x.ready:
		return x.works
	default:
		return false
	}
}

// AtPhase calls f once, before the rank ends one of its phases of operations through shared memory: 0 is the next one.
func AtPhase(c *Comm, phase int, f func()) {
	c.sharer.before = func() {
		if phase == 0 {
			f()
		}
		phase--
	}
}
