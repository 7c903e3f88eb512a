// Package mesh says which device holds which slice of an array, and what must
// move when that changes.
//
// A [Mesh] names the axes of a block of devices. A [Spec] says which axes split
// which dimension of an array. [Mesh.Shard] joins the two into a [Sharding],
// from which everything else follows: the slice of every device
// ([Sharding.Shards]), the part of one task ([Sharding.LocalShards]), arrays
// that span tasks ([FromLocal], [FromCallback], [FromPieces]), the tile form
// compilers use ([Sharding.Tile]), and the plan that turns one sharding into
// another ([Reshard.Plan]). Start with Mesh and Sharding.
//
// The results are those of JAX: the same device orders ([Make], [Arrange],
// [Hybrid]), the same slices, the same refusals. Where JAX is silent or wrong
// the comment at that place says what this package does instead.
//
// "Mesh order" is the order of a mesh's devices with the last axis fastest.
// Ranges are half open. Buffers are dense and row-major, sizes and strides are
// bytes where the name says so and elements otherwise.
//
// The package is pure: no I/O, clock, goroutine, lock or randomness takes part,
// so all tasks that see the same values come to the same answer. Values are
// immutable once made and may be shared. What is read from text or JSON is
// bounded and checked; bad input is an [Error] that names the axis, dimension
// or file and says what to change.
//
// Package form reads and writes meshes as text and JSON and draws them; package
// restore plans what to read after a restart. Read mesh.go first, then
// sharding.go and placement.go.
package mesh
