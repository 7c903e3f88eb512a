// Package topopb holds the messages by which the tasks of a job tell each
// other about their devices, through the key-value store of the coordination
// service: a LocalTopologyProto from each task, a GlobalTopologyProto from
// task 0 for all.
//
// Field numbers and types are those of the runtime that unmodified clients
// carry, so that old, new and our own tasks read each other (C-TOP-3). What
// the messages mean, and every check on them, is in package topo.
package topopb
