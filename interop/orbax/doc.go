// Package orbax holds package mesh/restore against Orbax itself: Orbax reads the device metadata that serry
// writes, serry reads what Orbax writes, and both make the same mesh out of it.
//
// The environment is that of scripts/venvs.sh orbax. Where this machine cannot have it the tests skip,
// or fail where CI is true.
package orbax
