package release

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What keeps pods from running, and for how long it may.

// imageReasons are those for which a container waits whose image is not there.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}

// imagePatience is how long an image may be missing before it is said to be: a
// registry may have a bad moment, and a wrong tag stays wrong.
const imagePatience = 40 * time.Second

// since measures how long something has been so.
type since struct{ from time.Time }

func (s *since) lasts(so bool, now time.Time) time.Duration {
	switch {
	case !so:
		s.from = time.Time{}
		return 0
	case s.from.IsZero():
		s.from = now
	}
	return now.Sub(s.from)
}

// correctTag is what to do about an image that does not exist.
const correctTag = "correct it with\n  liqoctl install --set tag=TAG\nwhich keeps the other values."

// imageTrouble says which image cannot be had, what goes on without it, and what to
// do, if it is the wrong one as advised. It is empty if all can.
func imageTrouble(pods []corev1.Pod, advice string) string {
	var text, serves string
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			switch w := c.State.Waiting; {
			case w != nil && slices.Contains(imageReasons, w.Reason) && text == "":
				text = fmt.Sprintf("image %s, which pod %s needs on node %s, cannot be pulled: %s: %s", c.Image, p.Name, p.Spec.NodeName, w.Reason, shorten(w.Message))
			case c.Ready && p.DeletionTimestamp == nil:
				serves = fmt.Sprintf("\nPod %s keeps running with image %s.", p.Name, c.Image)
			}
		}
	}
	if text == "" {
		return ""
	}
	return text + serves + "\nIf the tag is right, make the image available to the nodes and run the same command again. If it is wrong, " + advice
}

// podTrouble says why a pod is not ready, if it tells.
func podTrouble(p corev1.Pod) string {
	where := func(format string, args ...any) string { return "pod " + p.Name + ": " + fmt.Sprintf(format, args...) }
	for _, c := range p.Status.ContainerStatuses {
		switch w, t := c.State.Waiting, c.LastTerminationState.Terminated; {
		case w != nil && slices.Contains(imageReasons, w.Reason):
			return where("%s of image %s: %s", w.Reason, c.Image, shorten(w.Message)) // the end of the message does not name it
		case w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
			return where("%s", joined(w.Reason, w.Message))
		case t != nil && !c.Ready:
			return where("it exited with code %d (%s) and is being restarted", t.ExitCode, t.Reason)
		}
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return where("%s: %s", cond.Reason, shorten(cond.Message))
		}
	}
	return ""
}

// endedBy says why the cluster has ended a pod, or is about to, whose program is not to blame: it was evicted or displaced, or
// its node was lost or had no room. Empty: it has not. Of a program that ends by itself a pod has no reason.
// That is no trouble of a program: a Deployment leaves such pods lying about, and makes others.
func endedBy(p corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return "the cluster ends it: " + joined(c.Reason, c.Message)
		}
	}
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason != "" {
		return "the cluster has ended it: " + joined(p.Status.Reason, p.Status.Message)
	}
	for _, s := range p.Status.ContainerStatuses {
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil && t.Reason == "ContainerStatusUnknown" {
				return "its node has lost it: " + joined(t.Reason, t.Message)
			}
		}
	}
	return ""
}

// joined is a reason with its message, if it has one.
func joined(reason, message string) string {
	return strings.TrimSuffix(reason+": "+shorten(message), ": ")
}

// shorten keeps the end of a long message, which tells the cause: the beginning
// is who says it.
func shorten(message string) string {
	const enough = 120
	if r := []rune(message); len(r) > enough {
		return "..." + string(r[len(r)-enough:])
	}
	return message
}
