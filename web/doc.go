// Package web serves the page of a job: whether it is well, which rank is at fault, what is waited for and what happened. It
// serves a browser, a browser without JavaScript, curl, and programs that read JSON.
//
// A [Server] asks a [Source], which is the service of the job as the commands of serry ask it, so the page and the commands
// say the same. It asks at most twice a second, however many viewers there are, and only while there are some: one goroutine asks
// (hub.go) and encodes what has changed once, and every viewer is sent those bytes (stream.go). No viewer has a queue of its own: a viewer
// has the number of the last message that it was sent, so a slow one costs no memory.
//
// Keys, logs and errors of a job are not for other users of its host. So every request but those for the files of the page
// needs a token, on loopback too (access.go). The token may be traded for a cookie to look with. Nothing here changes the job, unless its
// user wants that: then requests with a second token do, and no cookie takes its place (acts.go).
//
// The files of the page are in the folder files, as they are sent: there is no build step. Read hub.go first.
package web
