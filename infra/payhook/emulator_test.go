package payhook

import (
	"slices"
	"testing"
)

// The emulator must be able to deploy what is left, also of options that it does not have.
func TestALocalTemplateHasOnlyWhatTheEmulatorSupports(t *testing.T) {
	tm := payhook(t, local, map[string]any{"encryption": "cmk"})
	for path, r := range tm.Resources {
		if slices.Contains(unsupported, r.Type) || r.Properties["Metrics"] != nil {
			t.Errorf("%s is a %s", path, r.Type)
		}
	}
	for name, f := range tm.all(t, "AWS::Lambda::Function") {
		// The certificates of a user's machine are searched as usual.
		if got := at(f.Properties, "Environment", "Variables", "SSL_CERT_DIR"); got != nil {
			t.Errorf("%s: SSL_CERT_DIR is %v", name, got)
		}
		want := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[thisMachine]
		if got := at(f.Properties, "Architectures", 0); got != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	if removed := len(payhook(t, map[string]any{"encryption": "cmk"}).Resources) -
		len(tm.Resources); removed != 4 {
		t.Errorf("%d resources are removed", removed)
	}
}
