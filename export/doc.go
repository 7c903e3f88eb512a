// Package export reads exported programs and binds their shardings to real devices.
//
// A program exported by JAX carries a named sharding for each argument and result, over an abstract
// mesh: axis names, sizes and types, but no devices. A [Manifest] is all of that as a value: the
// program itself stays opaque bytes with a digest. [Bind] joins a manifest with the meshes of a job
// and gives a [Bound]: the order of the devices, and for every argument and result its sharding, its
// shape and the slice of each device. Start with Manifest and Bind.
//
// A manifest comes from [ReadJAX], the file that jax.export writes; from [ReadOrbax], the manifest of
// older Orbax models, which has tile shardings only; or from [Decode], the JSON form of this package,
// which adds what the other two cannot say: names and roles of arguments, aliases of axes, bounds of
// symbolic sizes, where parameters are stored, and variants for other numbers of devices.
// [Manifest.Encode] and [Manifest.EncodeJAX] write.
//
// [Agree] compares the bound programs of all tasks of a job before the first step and names the first
// difference. [Bound.Rebind] binds again to the devices that are left after a loss, if the manifest
// lists a variant for them. [Diff] says how two manifests differ.
//
// Nothing here trusts a file. Every offset of the binary form is checked, the memory that a file costs
// its reader is bounded by the size of the file, and an unknown version or field is an error instead of
// a guess. Errors name the axis, the dimension and the argument. Values are immutable once made, except
// that the fields of a Manifest are the caller's to fill before it is bound. No I/O or clock takes part.
//
// Read manifest.go first, then bind.go.
package export
