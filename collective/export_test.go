package collective

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
