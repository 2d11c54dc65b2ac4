package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/test/source"
)

// programs are the names of Chromium, the smallest first.
var programs = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// patience is how long a browser may take for anything: a busy machine is slow.
const patience = 2 * time.Minute

// Page is a tab of a browser of its own, with a profile of its own.
type Page struct {
	// Downloads is the folder where files go that the page has saved.
	Downloads string

	t       testing.TB
	to      *os.File
	session string

	mu       sync.Mutex
	last     int
	answers  map[int]chan message
	troubles []string
	closed   chan struct{} // the browser has gone
}

// message is what both sides send: section "Protocol" of the DevTools Protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Open starts a browser with a window of some size. Where there is none the test ends as by
// source.Lacks.
func Open(t testing.TB, width, height int, dark bool) *Page {
	t.Helper()
	return OpenIn(t, func(start func() error) error { return start() }, width, height, dark)
}

// OpenIn is Open in another network namespace, whose loopback the browser then sees: do
// calls a function there.
func OpenIn(t testing.TB, do func(func() error) error, width, height int, dark bool) *Page {
	t.Helper()
	program := ""
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		source.Lacks(t, "Chromium (Debian's package chromium-headless-shell)")
	}
	p := &Page{Downloads: t.TempDir(), t: t, answers: make(map[int]chan message), closed: make(chan struct{})}
	p.start(program, do, width, height)
	p.call("Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": p.Downloads}, nil)
	var target struct {
		ID string `json:"targetId"`
	}
	p.call("Target.createTarget", map[string]any{"url": "about:blank", "width": width, "height": height}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	p.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	p.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	// The time of a thread is the same on a busy machine.
	p.call("Performance.enable", map[string]string{"timeDomain": "threadTicks"}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	return p
}

func (p *Page) start(program string, do func(func() error) error, width, height int) {
	p.t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	home := p.t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars",
		"--remote-debugging-pipe", "--user-data-dir="+filepath.Join(home, "profile"), fmt.Sprintf("--window-size=%d,%d", width, height), "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4: that is what the flag means
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stderr = log
	if err := do(cmd.Start); err != nil {
		p.t.Fatal(err)
	}
	in.Close()
	out.Close()
	p.to = to
	go p.read(from)
	p.t.Cleanup(func() {
		if p.t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				p.t.Logf("%s: %.4000s", program, text)
			}
		}
		to.Close() // it ends with the pipe
		select {
		case <-p.closed:
		case <-time.After(patience):
		}
		cancel()
		_ = cmd.Wait() // of a program that was killed
		from.Close()
		log.Close()
	})
}

// read takes messages, which end with a zero byte, until the browser is gone.
func (p *Page) read(from *os.File) {
	defer close(p.closed)
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		var params json.RawMessage
		m.Params = &params
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			p.trouble("a message of the browser: " + err.Error())
			continue
		}
		if m.ID == 0 {
			p.event(m.Method, params)
			continue
		}
		p.mu.Lock()
		answer := p.answers[m.ID]
		delete(p.answers, m.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

// event collects what a developer would see in red.
func (p *Page) event(method string, params json.RawMessage) {
	var e struct {
		Type string `json:"type"`
		Args []struct {
			Value       any    `json:"value"`
			Description string `json:"description"`
		} `json:"args"`
		Details struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			Level string `json:"level"`
			Text  string `json:"text"`
			URL   string `json:"url"`
		} `json:"entry"`
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	switch {
	case method == "Runtime.exceptionThrown":
		p.trouble(e.Details.Text + " " + e.Details.Exception.Description)
	case method == "Runtime.consoleAPICalled" && (e.Type == "error" || e.Type == "warning" || e.Type == "assert"):
		p.trouble(fmt.Sprintf("console: %+v", e.Args))
	case method == "Log.entryAdded" && (e.Entry.Level == "error" || e.Entry.Level == "warning"):
		p.trouble(e.Entry.Text + " " + e.Entry.URL)
	}
}

func (p *Page) trouble(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.troubles = append(p.troubles, text)
}

// Troubles are errors and warnings of the console so far, and uncaught exceptions.
func (p *Page) Troubles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.troubles...)
}

func (p *Page) call(method string, params, result any) {
	p.t.Helper()
	if err := p.try(method, params, result); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

func (p *Page) try(method string, params, result any) error {
	answer := make(chan message, 1)
	p.mu.Lock()
	p.last++
	m := message{ID: p.last, Session: p.session, Method: method, Params: params}
	p.answers[m.ID] = answer
	p.mu.Unlock()
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := p.to.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case m = <-answer:
	case <-p.closed:
		return errors.New("the browser has gone")
	case <-time.After(patience):
		return errors.New("the browser does not answer")
	}
	if m.Error != nil {
		return errors.New(m.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

// Go opens an address.
func (p *Page) Go(url string) {
	p.t.Helper()
	p.call("Page.navigate", map[string]any{"url": url}, nil)
}

// Eval evaluates an expression, which may be a promise, into a value.
func (p *Page) Eval(expression string, into any) error {
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Details *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := p.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &r)
	switch {
	case err != nil:
		return err
	case r.Details != nil:
		return errors.New(r.Details.Text + " " + r.Details.Exception.Description)
	case into == nil || len(r.Result.Value) == 0:
		return nil
	}
	return json.Unmarshal(r.Result.Value, into)
}

// Must is Eval of what cannot fail.
func (p *Page) Must(expression string, into any) {
	p.t.Helper()
	if err := p.Eval(expression, into); err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
}

// Worked is how much processor time the page has taken so far: scripts, styles, layout.
func (p *Page) Worked() time.Duration {
	p.t.Helper()
	var r struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	p.call("Performance.getMetrics", nil, &r)
	for _, m := range r.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	p.t.Fatal("the browser does not say how much it has worked")
	return 0
}

// Until waits until an expression is true.
func (p *Page) Until(expression string) {
	p.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ok := false
		// While a page loads, there may be nothing to ask.
		if err = p.Eval("!!("+expression+")", &ok); err == nil && ok {
			return
		}
		select {
		case <-p.closed:
			p.t.Fatal("the browser has gone")
		default:
		}
	}
	var text string
	_ = p.Eval("document.body.innerText.slice(0, 3000)", &text) // to explain the failure
	p.t.Fatalf("never true: %s (%v). The page:\n%s\nTroubles: %q", expression, err, text, p.Troubles())
}

// Press presses and releases a key: "Tab", "Enter", "a".
func (p *Page) Press(key string) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
	params := map[string]any{"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		params["text"] = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		params["type"] = kind
		p.call("Input.dispatchKeyEvent", params, nil)
	}
}

// Point moves the mouse to a place of the window.
func (p *Page) Point(x, y float64) { p.mouse("mouseMoved", x, y, nil) }

// Drag presses the mouse button at a place, and releases it at another.
func (p *Page) Drag(fromX, fromY, toX, toY float64) {
	held := map[string]any{"button": "left", "buttons": 1, "clickCount": 1}
	p.mouse("mouseMoved", fromX, fromY, nil)
	p.mouse("mousePressed", fromX, fromY, held)
	p.mouse("mouseMoved", (fromX+toX)/2, (fromY+toY)/2, held)
	p.mouse("mouseMoved", toX, toY, held)
	p.mouse("mouseReleased", toX, toY, map[string]any{"button": "left", "clickCount": 1})
}

// Wheel turns the wheel of the mouse at a place; up is negative.
func (p *Page) Wheel(x, y, by float64) {
	p.mouse("mouseWheel", x, y, map[string]any{"deltaX": 0, "deltaY": by})
}

func (p *Page) mouse(kind string, x, y float64, more map[string]any) {
	p.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y}
	maps.Copy(params, more)
	p.call("Input.dispatchMouseEvent", params, nil)
}

// Allow gives pages permissions that a user would give by a click, such as "clipboardReadWrite".
func (p *Page) Allow(permissions ...string) {
	p.t.Helper()
	p.call("Browser.grantPermissions", map[string]any{"permissions": permissions}, nil)
}

// Screenshot returns the visible part of the page as a PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var r struct {
		Data string `json:"data"`
	}
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return png
}
