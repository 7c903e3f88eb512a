package coord

import "encoding/binary"

// Kept is what a machine holds in memory for calls and barriers, for tests of what it frees.
type Kept struct {
	Waiting    int // calls that wait
	Lists      int // entries in lists of gets, watches and alive sets, dead ones included
	Gets       int // keys that gets wait for
	Groups     int // alive sets
	Barriers   int // ids
	Slots      int // places of members
	Arrivals   int // remembered of ended instances
	Past       int // instances before the present ones
	Requesters int
	Results    int // of calls with ids
}

// Kept counts what the machine holds.
func (m *Machine) Kept() Kept {
	k := Kept{
		Waiting: len(m.waiting), Gets: len(m.ep.gets), Groups: len(m.ep.groups), Barriers: len(m.ep.barriers),
		Requesters: len(m.ep.requesters), Lists: len(m.ep.watchers.all),
	}
	for _, l := range m.ep.gets {
		k.Lists += len(l.all)
	}
	for _, l := range m.ep.changes.watchers {
		k.Lists += len(l.all)
	}
	for _, g := range m.ep.groups {
		k.Lists += len(g.waiters.all)
	}
	for _, b := range m.ep.barriers {
		k.Slots += len(b.slots)
		k.Arrivals += len(b.arrivals)
		k.Past += len(b.past)
	}
	for _, r := range m.ep.requesters {
		k.Results += len(r.calls)
	}
	return k
}

// Seal wraps the body of a record or a snapshot as the machine does, and Unseal takes it out.
func Seal(body []byte) []byte { return seal(nil, Version, body) }

// Unseal is the reverse of Seal.
func Unseal(b []byte) ([]byte, error) {
	body, _, err := unseal(b, Version, "body")
	return body, err
}

// Sentinels are the plain errors that have a number.
func Sentinels() []error { return sentinels }

// AsVersion gives records or a snapshot another version, as the build of that version would have
// written them.
func AsVersion(b []byte, version uint64) (again []byte, err error) {
	for len(b) > 0 {
		body, rest, err := unseal(b, Version, "body")
		if err != nil {
			return nil, err
		}
		start := len(again)
		again = binary.AppendUvarint(binary.AppendUvarint(again, version), uint64(len(body)))
		again = append(again, body...)
		again = binary.LittleEndian.AppendUint32(again, checksum(again[start:]))
		b = rest
	}
	return again, nil
}
