// Package meshdiff holds package mesh against JAX itself. Its tests draw random
// meshes, specs, shapes and device orders, more than 40 % of them invalid, let
// jaxmesh.py answer with what the newest jax computes on forced host devices,
// and want the same from Go: index maps, shard shapes, replica numbers, device
// orders, tiles, text forms, and which step fails with which kind of error.
//
// The interpreter is SERRY_JAX_PYTHON, or the jax-new environment of
// scripts/venvs.sh. Without one the tests skip, or fail where CI is true. A
// failure prints the seed; SERRY_MESH_SEED runs it again.
package meshdiff
