// Package mirror caches the objects of an API server that a program reads, with
// little memory, and keeps them while the API server is unavailable.
//
//	API server --list, watch--> Store --Sourced--> manifests.Objects
//	                              |
//	                           Mirror --Run, changed--> the program reads again
//
// It is a reduced informer for programs that read everything again whenever
// something has changed: no index, no event, no queue. client-go's reflector lists
// and watches (Follow). Store takes the place of its cache.Store: a transform there
// can trim an object, but it can neither leave one out, as Keep does, nor ignore a
// change of what was trimmed.
//
// # Little memory
//
// Lists are read by pages. Of each object only what the program looks at is kept
// (Store.Trim), and only of those objects that concern it (Store.Keep). A change
// in what is not kept is no change. An object that is being deleted counts as
// deleted.
//
// # When the API server is unavailable
//
// Objects that were read stay. Watches are opened again with growing pauses of some
// five seconds. The loss of contact is logged once, and so is its return (Contact).
// What the program reports is written when that is possible again, the newest only
// (Writer).
package mirror
