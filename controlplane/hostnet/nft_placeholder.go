package hostnet

// This file goes when nft.go comes.

// TranslationState is what there is of TranslationTable.
type TranslationState struct {
	Available bool
	Reason    string
}

// TranslationChange is a change of TranslationTable.
type TranslationChange struct{}

func (TranslationChange) String() string { return "" }

func diffTranslation(Translation, TranslationState) []TranslationChange { return nil }
