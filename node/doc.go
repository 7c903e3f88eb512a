// Package node is one process of a service that has several: it leads, or it stands by.
//
// A [Node] campaigns for the leadership that its store gives away. While it leads, it runs a
// server.Server on the journal. While it stands by, it sends streams to the leader, and watches it: a
// leader whose connection breaks, and whose address then refuses another, is deposed at once; one that
// is merely silent keeps its office until its lease ends (C-TERM-3).
//
// Clients of both dialects may connect to any node. A relay in the node passes their calls to the
// node that leads, so that they notice neither who that is nor when it changes. The relay
// reaches its own node in memory: calls of clients that are connected to the leader do not cross the
// network a second time.
//
// Start with [New], then [Node.Serve]. [Node.Handover] gives a leadership to another node without the
// job taking notice, and [Node.Shutdown] does so where there is another; where there is none the node that
// is started next goes on with the job (C-STOP-4). [Node.Stop] ends the job.
package node
