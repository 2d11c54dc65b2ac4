//go:build !linux

package hostnet

// diffTranslation finds nothing to do where there is no nf_tables.
func diffTranslation(Translation, TranslationState) []TranslationChange { return nil }
