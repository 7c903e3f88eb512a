package export

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// A protoReader walks over protobuf messages. A fault ends the walk.
type protoReader struct{ fault }

// within says where the fault was found, if there is one.
func (r *protoReader) within(format string, at any) {
	if r.err != nil {
		r.err = fmt.Errorf(format+": %w", at, r.err)
	}
}

// A protoField is one field of a message as it stands in the bytes.
type protoField struct {
	r      *protoReader
	number protowire.Number
	kind   protowire.Type
	value  []byte // of a BytesType its content, else what encodes it
}

// each walks over the fields of a message.
func (r *protoReader) each(data []byte, visit func(protoField)) {
	for len(data) > 0 && r.err == nil {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			r.fail(formErrorf("message: %v", protowire.ParseError(n)))
			return
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 {
			r.fail(formErrorf("message, field %d: %v", number, protowire.ParseError(n)))
			return
		}
		f := protoField{r, number, kind, data[:n:n]}
		if kind == protowire.BytesType {
			f.value, _ = protowire.ConsumeBytes(f.value)
		}
		visit(f)
		r.within("field %d", number)
		data = data[n:]
	}
}

func (f protoField) failf(format string, args ...any) { f.r.fail(formErrorf(format, args...)) }

// each walks over the fields of the message that the field holds.
func (f protoField) each(visit func(protoField)) { f.r.each(f.bytes(), visit) }

// messages walks over the fields with one number of the message that the field holds.
func (f protoField) messages(number protowire.Number, visit func(protoField)) {
	f.each(func(f protoField) {
		if f.number == number {
			visit(f)
		}
	})
}

func (f protoField) varint() uint64 {
	if f.kind != protowire.VarintType {
		f.failf("want a number, got wire type %d", f.kind)
		return 0
	}
	v, _ := protowire.ConsumeVarint(f.value)
	return v
}

func (f protoField) bytes() []byte {
	if f.kind != protowire.BytesType {
		f.failf("want bytes, got wire type %d", f.kind)
		return nil
	}
	return f.value
}

// ints appends a number, or a packed list of them, to dst.
func (f protoField) ints(dst []int) []int {
	if f.kind == protowire.VarintType {
		return append(dst, int(int64(f.varint())))
	}
	for rest := f.bytes(); len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			f.failf("list of numbers: %v", protowire.ParseError(n))
			return nil
		}
		dst, rest = append(dst, int(int64(v))), rest[n:]
	}
	return dst
}
