package mesh

import (
	"encoding/binary"
	"math"
	"strconv"
)

// values prints the elements of a block; false where the type is not known.
func (b Block) values() ([]string, bool) {
	show := printerOf(b.Element)
	if show == nil {
		return nil, false
	}
	out := make([]string, 0, len(b.Data)/b.Element.Bytes)
	for at := 0; at < len(b.Data); at += b.Element.Bytes {
		out = append(out, show(b.Data[at:at+b.Element.Bytes]))
	}
	return out, true
}

// printerOf finds how to print a little-endian element, or nil.
func printerOf(e Element) func([]byte) string {
	le := binary.LittleEndian
	switch e {
	case Element{"bool", 1}:
		return func(b []byte) string { return strconv.FormatBool(b[0] != 0) }
	case Element{"int8", 1}:
		return func(b []byte) string { return strconv.Itoa(int(int8(b[0]))) }
	case Element{"uint8", 1}:
		return func(b []byte) string { return strconv.Itoa(int(b[0])) }
	case Element{"int16", 2}:
		return func(b []byte) string { return strconv.Itoa(int(int16(le.Uint16(b)))) }
	case Element{"uint16", 2}:
		return func(b []byte) string { return strconv.Itoa(int(le.Uint16(b))) }
	case Element{"int32", 4}:
		return func(b []byte) string { return strconv.Itoa(int(int32(le.Uint32(b)))) }
	case Element{"uint32", 4}:
		return func(b []byte) string { return strconv.FormatUint(uint64(le.Uint32(b)), 10) }
	case Element{"int64", 8}:
		return func(b []byte) string { return strconv.FormatInt(int64(le.Uint64(b)), 10) }
	case Element{"uint64", 8}:
		return func(b []byte) string { return strconv.FormatUint(le.Uint64(b), 10) }
	case Element{"bfloat16", 2}:
		return func(b []byte) string { return float(float64(math.Float32frombits(uint32(le.Uint16(b))<<16)), 32) }
	case Element{"float32", 4}:
		return func(b []byte) string { return float(float64(math.Float32frombits(le.Uint32(b))), 32) }
	case Element{"float64", 8}:
		return func(b []byte) string { return float(math.Float64frombits(le.Uint64(b)), 64) }
	}
	return nil
}

func float(v float64, bits int) string { return strconv.FormatFloat(v, 'g', -1, bits) }
