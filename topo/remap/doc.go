// Package remap answers, after a restart, which device is which and where its
// data are.
//
// Numbers do not tell: a scheduler may shuffle ranks, replace a host, or bring
// back fewer. So every saved step keeps a [Manifest], which says what each
// device was, and every task an [Index], which says what it holds by content
// and not by who wrote it. [Match] finds devices again by evidence, [Assign]
// gives returning machines their former ranks, and [PlanRestore] says for every
// piece of every array from where it comes, or that a step cannot be restored.
//
// The two files by which Orbax does part of this are read and written
// ([ParseFolder], [Metadata.Files]), and both of its ways to remap a mesh are
// here ([RemapByTask], [RemapByID]) with their blind spots.
//
// Everything is computed from values; whoever calls reads and writes the files.
// Nothing here trusts one: a file that was cut short or edited gives a
// [topo.FileError] that names it and the field.
package remap
