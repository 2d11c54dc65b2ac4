package control

import (
	"strings"
	"testing"
)

// No message may hold any part of a private key, whatever is wrong with it.
func TestProblemsHoldNoKeys(t *testing.T) {
	const secret = "S3cr3tS3cr3t"
	for _, data := range []string{
		"{privateKey: " + secret + "}", "{privateKey: '%%" + secret + "'}", "{privateKey: {" + secret + ": x}}", "{privateKey: [" + secret + "]}", "[" + secret + "]",
		"{privateKey: !t " + secret + "}", "'" + secret + "'",
	} {
		for _, field := range []string{"data", "stringData"} {
			_, err := decode(t, "other.yaml: => {apiVersion: v1, kind: Secret, metadata: {name: k}, "+field+": "+data+"}",
				"gateway.yaml: name: keys => name: k")
			if err == nil {
				t.Errorf("%s: %s: accepted", field, data)
			} else if strings.Contains(err.Error(), secret) && !strings.Contains(data, "{"+secret) {
				t.Errorf("%s: %s: the message shows the key: %v", field, data, err)
			}
		}
	}
}

// A key in the wrong place is hidden as well.
func TestProblemsHoldNoMisplacedKeys(t *testing.T) {
	const entry = "privateKey: fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0="
	const key = "fk0HmUu2yPXTNihex5N2/5jkcEm3yjRyMRHVLi4VvB0="
	for _, instead := range []string{
		"privateKey: !!int " + key, "privateKey: !!float " + key, "privateKey: !!bool " + key, "privateKey: !" + key + " x",
		key + ": privateKey", key + ":\n    " + key + ": x", key + ": x\n  " + key + ": y", "privateKey: {" + key + ": x}",
		"x: y\n" + key + ": x", "x: y\nmetadata:\n  " + key + ": x", "privateKey: *" + key, "privateKey: *fk0HmUu2yPXTNihex5N2",
		"x: y\n---\napiVersion: networking.liqo.io/v1beta1\nkind: " + key, "x: y\n---\napiVersion: networking.liqo.io/" + key + "\nkind: PublicKey\nmetadata: {name: " + key + "}",
	} {
		_, err := decode(t, "gateway.yaml: "+entry+" => "+instead)
		if err == nil {
			t.Errorf("%s: accepted", instead)
		} else if strings.Contains(err.Error(), key[:8]) {
			t.Errorf("%s: the message shows the key: %v", instead, err)
		}
	}
}
