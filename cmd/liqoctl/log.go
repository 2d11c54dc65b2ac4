package main

import (
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// requestLevel is from where on client-go shows requests; below it has little to
// tell that helps anybody.
const requestLevel = 6

// quietLibraries keeps what libraries log out of the way: what matters of it they
// return as errors, too. With -v=6 and more it is on stderr.
func (a *app) quietLibraries() {
	handler := slog.DiscardHandler
	if v := a.console.Verbose(); v >= requestLevel {
		// logr's levels are slog's, upside down.
		handler = slog.NewTextHandler(a.console.ErrOut(), &slog.HandlerOptions{Level: slog.Level(-v)})
	}
	slog.SetDefault(slog.New(handler))
	log := logr.FromSlogHandler(handler)
	klog.SetLoggerWithOptions(log, klog.ContextualLogger(true))
	ctrl.SetLogger(log)
}
