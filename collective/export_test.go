package collective

// ParseKey and Bytes are how keys cross the wire.
func ParseKey(b []byte) (*Key, error) { return parseKey(b) }

// Bytes is the canonical form of the key.
func (k *Key) Bytes() []byte { return k.append(nil) }

// ParseError reads a notice.
func ParseError(b []byte) (*Error, error) { return parseError(b) }

// Bytes is the notice as it is sent.
func (e *Error) Bytes() []byte { return e.append(nil) }
