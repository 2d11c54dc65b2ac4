// Package apply writes what a reconciler wants, and only when it differs from
// what is there.
//
// Object uses server-side apply with one field owner, which is the three-way
// merge of this project: fields that we set once and want no more go away,
// fields that others set stay, and fields that others took over come back. As an
// apply without effect still costs an API server a request, Object compares
// first: the wanted fields with those of the live object, and a hash of the
// wanted fields, kept in an annotation, with that of the last apply. The hash is
// what tells that a field is wanted no more.
//
// Status writes conditions and status fields by a merge patch that fails on a
// concurrent write, because several controllers write to the same list of
// conditions.
//
// The rest is what reconcilers share beside: RemoveFinalizers, Event, and
// RequeueOnConflict.
package apply
