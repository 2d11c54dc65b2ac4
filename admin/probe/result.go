package probe

// Identity says which prober it is.
type Identity struct {
	Cluster string `json:"cluster"`
	Pod     string `json:"pod"`
	Node    string `json:"node"`
}

// Answer is what a Server says to a client.
type Answer struct {
	Identity
	// Source is the client's address, as the server sees it.
	Source string `json:"source"`
}

// Result is what a Client found at a URL.
type Result struct {
	URL string `json:"url"`
	// OK says that the exchange was complete. Whose answer it was is the caller's
	// to judge.
	OK bool `json:"ok"`
	// Answer is absent where something else than a Server answered.
	Answer *Answer `json:"answer,omitempty"`
	// Status is that of HTTP.
	Status int `json:"status,omitempty"`
	// Bytes is how much arrived.
	Bytes int64 `json:"bytes,omitempty"`
	// Tries is how often it was tried; the last one counts.
	Tries int `json:"tries"`
	// Seconds is how long the last try took, connecting included.
	Seconds float64 `json:"seconds"`
	// Error says why not, and Stalled that it began well and then nothing came.
	Error   string `json:"error,omitempty"`
	Stalled bool   `json:"stalled,omitempty"`
}
