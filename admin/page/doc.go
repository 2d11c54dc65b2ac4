// Package page serves a page for the administrator's browser: a map of clusters and
// peerings, plots of what gateways carry, the path of a packet, drops, and the doctor's
// checks. It listens on loopback only, works with the rights of whoever started it, and
// changes nothing in a cluster.
//
//	guard.go       who may ask: Host, Origin, token; what a browser may do with an answer
//	watch.go       one survey at a time of each cluster, while a page is open
//	state.go       surveys -> State, what the map shows: pure
//	history.go     the last hour of each gateway, in memory
//	prometheus.go  what came before, if a Prometheus is configured
//	answer.go      bounds on every answer
//	api.go         what a page can ask; it asks admin/doctor, drops, trace, bundle
//	assets         the page: HTML, CSS, modules of JavaScript; no build step
//
// What a page shows comes from clusters, whose objects others may have written. Every
// text is truncated here, and enters the page only as text: its Content-Security-Policy
// allows nothing else.
package page
