// Package lab is what tests of serry share: servers and clients in virtual time. Only tests import it. Its own
// tests compare the documents with the code: a test must cite every clause of docs/spec that binds (TestLedger),
// and files, functions, packages and links that a document names must exist (TestDocuments, TestWalks, TestParts).
//
// Start with [Serve], which runs a real server over connections in memory inside a
// testing/synctest bubble, and with [Lab.N] and [Lab.O], clients of the two dialects that send
// exactly what a test tells them to. [ServeOracle] runs the same server behind grpc-go. Read fleet.go
// first.
package lab
