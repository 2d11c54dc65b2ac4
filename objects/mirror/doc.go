// Package mirror keeps the objects of an API server that a program reads at hand,
// with little memory and without losing them when the API server is away.
//
//	API server --list, watch--> Store --Sourced--> manifests.Objects
//	                              |
//	                           Mirror --Run, changed--> the program reads again
//
// It is what is left of an informer for programs that look at everything they
// hold whenever something has changed: no index, no event, no queue. client-go's
// reflector lists and watches (Follow). Store takes the place of its cache.Store: a
// transform there can trim an object, but it can neither leave one out, as Keep does,
// nor keep quiet about a change of what was trimmed.
//
// # Little memory
//
// Lists are read by pages. Of each object only what the program looks at is kept
// (Store.Trim), and only of those objects that concern it (Store.Keep). A change
// in what is not kept is no change. An object that is being deleted counts as
// gone.
//
// # An API server that is away
//
// What was read stays. Watches are opened again with growing pauses of some five
// seconds. It is logged once when the contact is lost, and once when it is there
// again (Contact). What the program has to tell is written when that is possible
// again, the newest only (Writer).
package mirror
