package topo

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/wire/topopb"
)

// How many tasks, devices and attributes together a message may hold. An empty
// device takes two bytes on the wire and some hundred in memory, so a bound on
// bytes alone would not do. A job of 10,000 tasks with sixteen devices of five
// attributes each fits, and so does a task with all 2048 CPU devices it can have.
const (
	maxEntries      = 1 << 20
	maxLocalEntries = 1 << 16
)

// Field numbers that lead from a message down to its repeated parts: tasks,
// their devices, the attributes of these.
var (
	globalPath = []protowire.Number{1, 3, 11}
	localPath  = globalPath[1:]
)

// parseLocal reads what one task has published about itself.
func parseLocal(value []byte) (*topopb.LocalTopologyProto, error) {
	m := new(topopb.LocalTopologyProto)
	if err := decode(value, localPath, maxLocalEntries, m); err != nil {
		return nil, fmt.Errorf("local topology: %w", err)
	}
	return m, nil
}

// parseGlobal reads what task 0 has published for all.
func parseGlobal(value []byte) (*topopb.GlobalTopologyProto, error) {
	m := new(topopb.GlobalTopologyProto)
	if err := decode(value, globalPath, maxEntries, m); err != nil {
		return nil, fmt.Errorf("global topology: %w", err)
	}
	return m, nil
}

// Encode gives the bytes of a local or global topology, the same bytes for the
// same message each time. Fields that this version does not know are kept
// (C-TOP-3).
func Encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// decode parses data into m after it has seen that m will not be too large.
func decode(data []byte, path []protowire.Number, limit int, m proto.Message) error {
	n, err := countEntries(data, path)
	if err != nil {
		return err
	}
	if n > limit {
		return fmt.Errorf("%d tasks, devices and attributes; at most %d are read", n, limit)
	}
	return proto.Unmarshal(data, m)
}

// countEntries counts the parts that path leads to, without allocating them.
func countEntries(data []byte, path []protowire.Number) (int, error) {
	count := 0
	for len(path) > 0 && len(data) > 0 {
		num, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(num, kind, data)
		if size < 0 {
			return 0, protowire.ParseError(size)
		}
		if num == path[0] && kind == protowire.BytesType {
			part, _ := protowire.ConsumeBytes(data[:size])
			inner, err := countEntries(part, path[1:])
			if err != nil {
				return 0, err
			}
			count += 1 + inner
		}
		data = data[size:]
	}
	return count, nil
}
