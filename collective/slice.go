package collective

import (
	"context"
	"reflect"

	"github.com/serry-dev/serry/memory"
)

// AllReduceSlice is [AllReduce] of numbers. dst and src have the same length on all ranks and may be one slice.
func AllReduceSlice[T memory.Number](ctx context.Context, c *Comm, dst, src []T, r Reduction) error {
	if len(dst) != len(src) {
		return invalid("allreduce of %d numbers into %d", len(src), len(dst))
	}
	return c.Do(ctx, AllReduce{Out: memory.OfSlice(dst), In: memory.OfSlice(src), Count: int64(len(src)), Type: typeOf[T](), Reduction: r})
}

// BroadcastSlice is [Broadcast] of numbers: every rank gets those of the root in data.
func BroadcastSlice[T memory.Number](ctx context.Context, c *Comm, data []T, root int) error {
	r := memory.OfSlice(data)
	return c.Do(ctx, Broadcast{Out: r, In: r, Count: int64(len(data)), Type: typeOf[T](), Root: root})
}

// AllGatherSlice is [AllGather] of numbers: dst has room for src of all ranks.
func AllGatherSlice[T memory.Number](ctx context.Context, c *Comm, dst, src []T) error {
	if len(dst) != len(src)*c.Size() {
		return invalid("allgather of %d numbers of each rank into %d", len(src), len(dst))
	}
	return c.Do(ctx, AllGather{Out: memory.OfSlice(dst), In: memory.OfSlice(src), Count: int64(len(src)), Type: typeOf[T]()})
}

// ReduceScatterSlice is [ReduceScatter] of numbers: src has as many blocks as there are ranks, of the length of dst.
func ReduceScatterSlice[T memory.Number](ctx context.Context, c *Comm, dst, src []T, r Reduction) error {
	if len(src) != len(dst)*c.Size() {
		return invalid("reducescatter of %d numbers into %d on each rank", len(src), len(dst))
	}
	return c.Do(ctx, ReduceScatter{Out: memory.OfSlice(dst), In: memory.OfSlice(src), Count: int64(len(dst)), Type: typeOf[T](), Reduction: r})
}

// types has the element type of each kind of number.
var types = map[reflect.Kind]memory.DType{
	reflect.Int8: memory.S8, reflect.Int16: memory.S16, reflect.Int32: memory.S32, reflect.Int64: memory.S64,
	reflect.Uint8: memory.U8, reflect.Uint16: memory.U16, reflect.Uint32: memory.U32, reflect.Uint64: memory.U64,
	reflect.Float32: memory.F32, reflect.Float64: memory.F64, reflect.Complex64: memory.C64, reflect.Complex128: memory.C128,
}

// typeOf is the element type of numbers.
func typeOf[T memory.Number]() memory.DType { return types[reflect.TypeFor[T]().Kind()] }
