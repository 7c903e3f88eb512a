// Package restore says, after a restart, where the data of each device come
// from.
//
// Numbers do not tell: a scheduler may shuffle ranks, replace a host, or bring
// back fewer. So every saved step keeps a [Manifest], which says what each
// device was, and every task an [Inventory], which says what it holds by content
// and not by which task wrote it. [topo.Match] finds devices again by evidence,
// and [NewPlan] says for every piece of every array from where it comes, or that
// a step cannot be restored. Blocks of arrays are those of package mesh; this
// package adds which copy of a block is the best one to read.
//
// The two files by which Orbax does part of this are read and written
// ([ParseFolder], [Metadata.Files]), and both of its ways to remap a mesh are
// here ([RemapByTask], [RemapByID]) with their blind spots.
//
// Everything is computed from values; the caller reads and writes the files.
// Nothing here trusts a file: one that was cut short or edited gives a
// [topo.FileError] that names it and the field.
//
// Read plan.go first, then choose.go.
package restore
