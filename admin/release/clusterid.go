package release

import (
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// suggestID makes a name for a cluster of its UID: the same each time, so that
// nothing has to be remembered between a dry run and the installation.
func suggestID(uid types.UID) string {
	h := fnv.New64a()
	h.Write([]byte(uid))
	sum := h.Sum64()
	as, ns := strings.Fields(adjectives), strings.Fields(nouns)
	return as[sum%uint64(len(as))] + "-" + ns[sum/uint64(len(as))%uint64(len(ns))]
}

const adjectives = `able amber ample autumn azure bold brave brief bright brisk bronze calm candid careful cheerful clear clever
cobalt cool copper coral cordial crimson crisp curious dapper daring deep dewy distant eager early east easy even fair famous fast
fine firm fleet fluent fond frank free fresh gentle glad golden good grand green handy happy hardy honest humble ivory jade jolly
keen kind large late level light lilac linen little lively loyal lucid lucky lunar mellow merry mild misty modest navy neat nimble noble
north novel olive open patient pearl plain pleasant polar polite prime proud quick quiet rapid ready rich robust royal ruby rustic sage
scarlet serene sharp silent silver simple sleek smart smooth snug solar solid south spare steady still stout sturdy sunny swift tall tidy
tranquil true upright vast velvet vivid warm west wide wild wise witty young`

const nouns = `acorn alder anchor anvil apple arch aspen badger bamboo barley basin bay beacon beech birch bison bramble breeze bridge
brook canal canyon castle cedar cherry cliff clover cloud coast comet cove crane creek daisy dale delta dune eagle elm falcon fern field
finch fjord forest fox garden geyser glacier glade grove gull harbour hare harvest hawk hazel heath heron hill hollow island ivy juniper
kestrel kite lagoon lake lantern lark laurel leaf lemon lily linden lotus lynx maple marsh martin meadow mesa mill mint moor moss
mountain nectar oak oasis ocean orchard osprey otter owl pebble pine plain plum pond poplar prairie quail quarry quartz rain rapids raven
reef ridge river robin rook rowan saffron sail sequoia shore sparrow spring spruce stone stork stream summit swallow swan tern thistle
thrush tiger timber trail tulip valley violet walnut wave willow wren`
