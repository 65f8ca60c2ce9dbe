/* SPDX-License-Identifier: MIT */
#include "grammar.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TOPIC(a, n_1)        \
    {                        \
        (a), COUNT(a), (n_1) \
    }
#define LIST(name)                             \
    {                                          \
#name, list_##name, COUNT(list_##name) \
    }

/* ---- Words ---- */

static const char *const list_man[] = {"Anders", "Bruno", "Casper", "Dorian", "Edvin",  "Falko", "Gregor",
                                       "Henrik", "Ivo",   "Jonas",  "Kaspar", "Leon",   "Milan", "Nils",
                                       "Oskar",  "Pavel", "Ruben",  "Stefan", "Tobias", "Viktor"};
static const char *const list_woman[] = {"Agnes", "Berta", "Clara",  "Dagmar", "Elena", "Frieda", "Greta",
                                         "Hanna", "Ilona", "Judith", "Katja",  "Lena",  "Marta",  "Nora",
                                         "Olga",  "Paula", "Rosa",   "Sofia",  "Tilda", "Vera"};
static const char *const list_family[] = {
    "Abendroth", "Bellin",  "Carsten", "Dahlke", "Egede",   "Fromm",   "Gerlach", "Holm",
    "Iversen",   "Janssen", "Kolbe",   "Lind",   "Moravec", "Nyland",  "Osten",   "Petrak",
    "Quist",     "Rasch",   "Sandor",  "Tamm",   "Ullman",  "Vesely",  "Wieland", "Zander",
    "Brandis",   "Corell",  "Drexler", "Falk",   "Grauer",  "Hollar",  "Jessen",  "Kranich",
    "Lorenz",    "Mattis",  "Noack",   "Priebe", "Rother",  "Sievert", "Thoma",   "Wendt"};
static const char *const list_town[] = {
    "Aldern",   "Bressau", "Corvel",  "Dunmere", "Elsholt", "Farnau", "Gildern", "Hasmark", "Ivelsted",
    "Jarnholm", "Kellin",  "Lorvik",  "Marsund", "Norrby",  "Ostra",  "Pelmar",  "Quarnow", "Rendal",
    "Sulte",    "Tervo",   "Ulmsted", "Varnes",  "Wolmar",  "Ysted",  "Zarnau"};
static const char *const list_street[] = {
    "Rope Street",     "Kiln Lane",      "the Salt Market", "Cooper's Row",  "Mill Stairs",
    "Lantern Lane",    "the Lower Quay", "Bell Yard",       "Tanner Street", "the Long Steps",
    "Chapel Hill",     "Linden Square",  "Ferry Road",      "the Old Ditch", "Candle Street",
    "Potter's Corner", "North Gate",     "the Fish Stairs", "Barley Street", "Wagon Yard"};
static const char *const list_trade[] = {
    "cooper",        "clerk",      "baker",    "saddler",    "surveyor", "ferryman",
    "midwife",       "glazier",    "printer",  "blacksmith", "weaver",   "organist",
    "joiner",        "apothecary", "engraver", "innkeeper",  "gardener", "clockmaker",
    "schoolteacher", "bookbinder", "shepherd", "locksmith",  "roofer",   "dyer"};
static const char *const list_kin[] = {"sister",        "brother",     "uncle",     "aunt",
                                       "cousin",        "grandmother", "nephew",    "godfather",
                                       "father-in-law", "daughter",    "neighbour", "niece"};
static const char *const list_thing[] = {
    "brass lamp",  "wicker basket",   "pair of scales", "copper kettle",  "oak chest",      "folding ladder",
    "wall clock",  "leather satchel", "iron stove",     "writing desk",   "silver thimble", "wooden sledge",
    "barometer",   "violin case",     "garden bench",   "sewing machine", "tin trunk",      "umbrella stand",
    "hand mirror", "music box",       "coal scuttle",   "rocking chair",  "birdcage",       "spirit level",
    "enamel jug",  "telescope",       "milk churn",     "hat box",        "fishing rod",    "wheelbarrow"};
static const char *const list_material[] = {"oak",       "slate",     "copper",    "pine",    "brick",
                                            "sandstone", "larch",     "tin",       "granite", "lead",
                                            "ash wood",  "cast iron", "limestone", "elm",     "zinc"};
static const char *const list_colour[] = {"green", "dark blue",  "grey",   "yellow", "brick red", "white",
                                          "black", "pale brown", "orange", "cream",  "violet",    "rust"};
static const char *const list_food[] = {"smoked herring",  "barley bread", "plum dumplings",  "goat cheese",
                                        "pickled beans",   "onion tart",   "honey cake",      "pea soup",
                                        "dried apples",    "mutton stew",  "buttermilk",      "rye biscuits",
                                        "stuffed cabbage", "cherry jam",   "roast chestnuts", "potato salad",
                                        "walnut bread",    "fried perch",  "quince jelly",    "mushroom pie"};
static const char *const list_crop[] = {"barley",   "flax",    "pears", "hops",   "turnips", "cherries",
                                        "oats",     "plums",   "beans", "apples", "rye",     "onions",
                                        "potatoes", "walnuts", "leeks", "clover"};
static const char *const list_animal[] = {"mule",      "goose",   "grey cat", "sheepdog",  "goat",
                                          "carthorse", "jackdaw", "donkey",   "brown cow", "terrier",
                                          "ram",       "stork",   "pony",     "hedgehog"};
static const char *const list_building[] = {
    "town hall", "corn exchange", "chapel",   "schoolhouse", "toll house",   "brewery",    "lighthouse",
    "tannery",   "grain store",   "hospital", "post office", "boathouse",    "bakery",     "fire station",
    "sawmill",   "customs house", "theatre",  "ropewalk",    "savings bank", "weigh house"};
static const char *const list_weather[] = {
    "a cold east wind", "thin rain",       "thick fog",           "an early frost", "a warm southerly breeze",
    "steady drizzle",   "heavy snow",      "a dry heat",          "hail",           "a sudden thaw",
    "low cloud",        "bright sunshine", "a gale from the sea", "wet snow",       "morning mist"};
static const char *const list_month[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
static const char *const list_day[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                       "Friday", "Saturday", "Sunday"};
static const char *const list_season[] = {"spring", "summer", "autumn", "winter"};
static const char *const list_time[] = {"before sunrise",     "at noon",
                                        "shortly after nine", "towards evening",
                                        "in the small hours", "around four o'clock",
                                        "just before supper", "during the morning bell",
                                        "late at night",      "at half past six"};
static const char *const list_adj[] = {
    "careful",       "stubborn", "cheerful", "silent", "curious",   "patient", "restless", "thrifty",
    "absent-minded", "punctual", "generous", "modest", "talkative", "proud",   "gentle",   "quick-tempered"};
static const char *const list_quality[] = {
    "crooked",       "dented",          "handsome", "heavy", "worn",     "narrow",
    "old-fashioned", "freshly painted", "borrowed", "solid", "rickety",  "plain",
    "polished",      "half-finished",   "sturdy",   "rusty", "splendid", "cracked"};
static const char *const list_fair[] = {
    "the spring fair",    "the harvest supper",  "the boat race",           "the candle market",
    "the cattle show",    "the midsummer dance", "the wool auction",        "the lantern walk",
    "the choir festival", "the town jubilee",    "the apprentices' parade", "the ploughing match"};
static const char *const list_reason[] = {"because {+trade} from {town} had promised to pay for it",
                                          "since nobody could lift the {quality} {thing} alone",
                                          "because {weather} had been forecast for {day}",
                                          "since the key of the {building} had gone missing",
                                          "because {his} {kin} in {town} had asked for it twice",
                                          "since the ferry to {town} was late again",
                                          "because {q} had said so in front of {n} witnesses",
                                          "since there was no {material} left in the yard",
                                          "because {fair} was only {n} days away",
                                          "since the {trade} of {street} charged too much"};
static const char *const list_manner[] = {
    "without a word",         "with great patience",       "in a hurry",
    "to everyone's surprise", "as {q} had advised",        "with both sleeves rolled up",
    "under protest",          "by the light of {+thing}",  "for the second time",
    "a little too early",     "with the help of {+trade}", "while {q} kept watch"};
static const char *const list_remark[] = {
    "and {q} wrote that down in {+colour} notebook", "but the {trade} of {town} did not believe it",
    "and by {month} all of {street} knew about it",  "though {his} {kin} remembered it differently",
    "and {n} children from {street} came to watch",  "but {weather} put an end to it on {day}",
    "and the {thing} was never found again",         "though the bill for the {material} came to {N} crowns",
    "and {q} laughed about it until {month}",        "but it cost {him} {n} nights of sleep"};

const struct list prose_lists[] = {LIST(man),     LIST(woman), LIST(family), LIST(town),     LIST(street),
                                   LIST(trade),   LIST(kin),   LIST(thing),  LIST(material), LIST(colour),
                                   LIST(food),    LIST(crop),  LIST(animal), LIST(building), LIST(weather),
                                   LIST(month),   LIST(day),   LIST(season), LIST(time),     LIST(adj),
                                   LIST(quality), LIST(fair),  LIST(reason), LIST(manner),   LIST(remark)};
const size_t prose_n_lists = COUNT(prose_lists);

/* ---- Sentences ---- */

static const char *const harbour[] = {
    "{P} kept the harbour of {T} for {n} years, and before that {he} had been {+trade} in {town}.",
    "The harbour of {T} froze over in {month} {y}, and {P} was the first to walk across it.",
    "In {y} {P} bought {+colour} barge from {+trade} in {town} and moored it below {street}.",
    "Every {day} {he} measured the depth beside the {building} and chalked it on {+quality} board.",
    "A schooner from {town} brought {N} barrels of {crop}, of which {n} were spoiled.",
    "{Q} sold {food} to the sailors, {reason}.",
    "When {weather} came up {time}, {p} hung {+thing} in the window of the {building}.",
    "The {material} steps at {street} were slippery, {remark}.",
    "{His} boat was named after {his} {kin}, who had never left {town}.",
    "On {day} the pilots drew lots for {+quality} {thing}, and {q} won.",
    "Between {town} and {T} there were {n} buoys, each painted {colour} and numbered by hand.",
    "{p} once rowed {+animal} to {town} and back, {reason}.",
    "The crane beside the {building} could lift {N} kilograms, but {p} trusted it with half of that.",
    "Nets of the {season} were mended on {street}, and {q} paid {n} coins for each.",
    "A sailor from {town} left {+thing} as security and came back for it in {month}.",
    "{he} knew from the smell of the water that {weather} was on its way from {town}."};
static const char *const market[] = {
    "{P} had a stall on {street} in {T} and sold {food} there every {day}.",
    "The market of {T} moved to {street} in {y}, and {P} complained about it until {month}.",
    "Nobody in {T} weighed {crop} as honestly as {P}, {+trade} by training.",
    "{Q} offered {n} crowns for the {quality} {thing} and was refused {manner}.",
    "In {month} the price of {crop} rose, {reason}.",
    "{+adj} {trade} from {town} wanted {N} eggs at once and paid with {+thing}.",
    "{p} wrapped the {food} in {colour} paper, {remark}.",
    "The stall to the left belonged to {q}, who dealt in {material} and {crop}.",
    "Whoever came {time} got the {food} for half the price.",
    "{His} {kin} carried the baskets up {street}, {manner}.",
    "At {fair} they sold {N} portions of {food} and gave away {n} more.",
    "The inspector from {town} tested the scales with {+thing} and found them {n} grams short.",
    "{+animal} ate the {crop} of the stall opposite, {remark}.",
    "During {weather} the canvas was held down with bars of {material} from the {building}.",
    "{q} and {p} shared the rent of the cellar under the {building}, {n} crowns each.",
    "For {fair} the whole of {street} was hung with {colour} ribbons."};
static const char *const school[] = {
    "{P} taught {n} classes in the school of {T}, all of them in one room.",
    "The school of {T} stood behind the {building}, and {P} rang its bell until {y}.",
    "As a child {P} walked from {town} to the school of {T}, even through {weather}.",
    "Arithmetic was taught with {crop} in place of numbers, {reason}.",
    "{p} drew the river from {town} to {T} on the wall in {colour} chalk.",
    "The best pupil of {y}, {Q}, later became {+trade} in {town}.",
    "On {day} the older children learned how {+trade} works with {material}.",
    "{His} desk held {+quality} {thing}, {n} pens and a jar of {food}.",
    "Whoever came late had to carry {material} to the {building}, {manner}.",
    "In {month} the stove was lit {time}, and the room smelled of {food}.",
    "{N} pupils were photographed with {+thing} in the middle, {remark}.",
    "{q} could recite the streets of {town} backwards, from {street} to {street}.",
    "The globe had been given by {his} {kin}, and {town} was marked on it in {colour} ink.",
    "At {fair} the youngest sang about {+animal}, {remark}.",
    "Letters were practised on {material} tablets that {+trade} from {town} had cut.",
    "{+adj} inspector listened for {n} minutes and asked about the price of {crop}."};
static const char *const mill[] = {
    "{P} took over the mill above {T} in {y}, {reason}.",
    "The mill of {T} had {n} wheels, and {P} oiled them {time}.",
    "Three generations before {P} the mill at {T} had ground nothing but {crop}.",
    "The water came from {town} in a channel of {material}, {n} miles long.",
    "{p} could tell by the sound that {+thing} had fallen between the stones.",
    "Farmers from {town} waited with {crop} along {street}, {manner}.",
    "When the river rose in {month}, {Q} opened the gates {manner}.",
    "{His} {kin} sewed sacks of {colour} cloth and marked each with {+animal}.",
    "The {season} of {y} was so dry that the wheels turned only on {day}.",
    "For every {N} pounds of {crop} the miller kept {n}.",
    "A new shaft of {material} arrived from {town} on {+quality} cart, {remark}.",
    "{q} slept beside the hopper in {month}, {reason}.",
    "There was always {food} on the table for whoever brought {crop} through {weather}.",
    "The ledger shows {N} sacks for the {building} and {n} for {+trade} called {q}.",
    "{+animal} guarded the yard and was afraid of nothing but {weather}.",
    "In {y} the {trade} of {town} offered to buy the wheels for their {material}."};
static const char *const workshop[] = {
    "{P}, {+trade} in {T}, repaired whatever was carried through {his} door on {street}.",
    "The workshop of {P} in {T} had one window, and {+colour} curtain before it.",
    "In {y} {P} opened a workshop in {T} with {+thing} and {n} borrowed tools.",
    "The {quality} {thing} of {Q} came back three times, {reason}.",
    "{p} made the handle from {material} and fastened it with {n} rivets.",
    "An apprentice from {town} swept the floor {time} and learned to work {material} by {month}.",
    "For the {building} {he} built {+thing}, {remark}.",
    "The bill said {N} crowns, and {q} paid with {food} and {crop}.",
    "On a shelf stood {+thing} that nobody had claimed since {y}.",
    "{He} tested every spring {manner}, and twice when it came from {town}.",
    "Glue was boiled {time}, and then the whole of {street} kept its windows shut.",
    "{q} wanted the {thing} in {colour}, but {p} only had {colour} paint left.",
    "{+adj} {trade} once asked for {+thing} that folds, {remark}.",
    "{His} {kin} kept the accounts in {n} boxes of {material}.",
    "Before {fair} there were {N} orders on the nail, most of them for {town}.",
    "The saw hung beside {+quality} {thing} and was lent to nobody but {q}."};
static const char *const railway[] = {
    "{P} was stationmaster of {T} from {y} on and lived above the {colour} waiting room.",
    "The line from {town} reached {T} in {month} {y}, and {P} sold the first {n} tickets.",
    "Trains stopped in {T} only when {P} waved {+thing}, {reason}.",
    "The night train carried {crop} to {town} and {N} sacks of mail on {day}.",
    "{Q} fell asleep {time} and woke up in {town}, {remark}.",
    "Snow blocked the cutting near {town} for {n} days, {reason}.",
    "{p} grew {crop} along the platform and won a prize for them at {fair}.",
    "A crate marked {N} held {+thing} for the {trade} of {street}.",
    "The signal lamp was {colour} and had been made from {+thing} in {y}.",
    "{His} {kin} sold {food} to travellers {time}, {manner}.",
    "On the bench sat {+animal} that belonged to {+trade} from {town}.",
    "The clock ran {n} minutes fast, {reason}.",
    "In {weather} the engine took {N} minutes from {town}, and {p} noted each of them.",
    "{q} inspected the {material} sleepers between {T} and {town}, {manner}.",
    "A director arrived on {day}, praised the {food} and forgot {+thing} in the carriage.",
    "Lost property of {y}: {+thing}, {n} gloves and {+quality} {thing}."};
static const char *const weather[] = {
    "{P} wrote down the weather of {T} every day from {y} until {his} eyes failed.",
    "The {season} of {y} brought {weather} to {T}, and {P} measured it {manner}.",
    "In {T} the weather is announced at the {building}, and for years {P} did it {time}.",
    "The rain gauge of {material} stood behind the {building}, {n} steps from {street}.",
    "On the first {day} of {month} {he} noted {weather} and {N} swallows.",
    "{Q} in {town} kept a second diary, and the two differed by {n} degrees.",
    "After {weather} the river rose to the {colour} mark on the {building}.",
    "{p} trusted {+animal} more than the barometer, {reason}.",
    "Lightning struck {+quality} {thing} on {street}, {remark}.",
    "The farmers cut their {crop} when {q} hung out {+thing}.",
    "In {y} there was {weather} in {month} and none in {month}.",
    "{+adj} {trade} from {town} asked whether {weather} would spoil {fair}.",
    "{His} {kin} read the thermometer {time}, {manner}.",
    "The wind vane on the {building} shows {+animal} of {material}.",
    "For {n} weeks nobody between {town} and {street} saw the sun.",
    "The coldest night was in {month}, when even the {food} froze on the table of {q}."};
static const char *const music[] = {
    "{P} led the choir of {T} and tuned the piano of the {building} {time}.",
    "The band of {T} was founded in {y} by {P}, who played nothing but the drum.",
    "In {month} {y} {P} gave {n} concerts in {T}, all of them in the {building}.",
    "The second violin, {Q}, was {+trade} from {town} and came on foot through {weather}.",
    "Rehearsals took place on {day}, {reason}.",
    "{p} wrote a march for {fair}, {remark}.",
    "The drum was covered with {colour} cloth, and {+thing} served as the triangle.",
    "{N} people heard the song about the {trade} and the {animal}.",
    "{+adj} singer from {town} was paid with {food} and {+thing}.",
    "{His} {kin} turned the pages {manner}.",
    "Between the pieces {q} told how {+trade} in {town} had lost {+thing}.",
    "The stage was of {material} and creaked, {remark}.",
    "On {street} the children whistled the tune until {month}.",
    "For {fair} the trumpets were polished {manner}, {n} hours long.",
    "The notes lay in {+quality} box beside {+thing} and a plate of {food}.",
    "{p} could not stand {weather}, and {his} strings could not either."};
static const char *const garden[] = {
    "{P} planted {n} rows of {crop} behind the {building} of {T} in {y}.",
    "The garden of {P} lay above {T}, where {street} turns into a footpath.",
    "Nobody in {T} grew {crop} as large as those of {P}, {reason}.",
    "In {month} {he} dug in {N} buckets of ash from the {building}.",
    "The fence was of {material}, and {Q} painted it {colour}, {manner}.",
    "{+animal} from {street} came through the hedge {time}, {remark}.",
    "Seeds of {crop} were kept in {+thing} and labelled by {his} {kin}.",
    "{q} exchanged {n} jars of {food} for a basket of {crop}.",
    "After {weather} the {crop} had to be tied to rods of {material}.",
    "The well was {N} feet deep, and {p} had lost {+thing} in it.",
    "At {fair} the {crop} won {+colour} ribbon and {n} crowns.",
    "{+adj} visitor from {town} asked for cuttings and left {+thing} behind.",
    "On {day} {he} watered everything {time}, even during {weather}.",
    "The {trade} next door grew nothing but {crop}, {reason}.",
    "Under the pear tree stood {+quality} {thing} that {q} had brought from {town}.",
    "In the {season} the wasps went for the {food}, {remark}."};
static const char *const post[] = {
    "{P} carried the post between {T} and {town} for {n} years, on foot and through {weather}.",
    "The post office of {T} had {N} boxes, and {P} knew the owner of each.",
    "A letter from {T} to {town} took {n} days in {y}, and {P} thought that hasty.",
    "On {day} {he} delivered {+thing} to {+trade} on {street}, {manner}.",
    "{Q} wrote to {his} {kin} in {town} every {month}, always on {colour} paper.",
    "A parcel of {food} lay in the {building} until {month}, {reason}.",
    "{+animal} waited at the corner of {street} {time}, {remark}.",
    "The stamp showed {+animal} in {colour} and cost {n} pence.",
    "{p} read no postcards, but {he} knew that {q} was selling {+thing}.",
    "In {y} the bag contained {N} letters for the {building} and one for {q}.",
    "One envelope held only {crop} and the address of {+trade} in {town}.",
    "{His} coat was {colour}, and its buttons were of {material}.",
    "During {fair} the post was handed out on {street}, {reason}.",
    "{+adj} gentleman from {town} sent himself {+thing} by mistake, {remark}.",
    "The path past the {building} was the shortest, but {p} avoided it in {weather}.",
    "The last mail coach took {+quality} {thing} and {n} passengers to {town}."};
static const char *const farm[] = {"{P} farmed {N} acres between {T} and {town}, most of them in {crop}.",
                                   "The farm of {P} near {T} was known for {+animal} that could open gates.",
                                   "In {y} {P} came back to {T} with {+animal}, {n} hens and {+thing}.",
                                   "The barn was roofed with {material}, {reason}.",
                                   "{Q} bought the {animal} for {N} crowns, {remark}.",
                                   "In {month} they brought in the {crop} before {weather} reached {town}.",
                                   "{p} called every cow after {+trade} of {street}, {manner}.",
                                   "The {animal} drew {+quality} cart to the {building} every {day}.",
                                   "{His} {kin} made {food} in the old dairy {time}.",
                                   "A fence of {material} kept {+animal} from {town} out of the {crop}.",
                                   "{n} lambs were born during {weather}, {remark}.",
                                   "The vet came from {town} with {+thing} and stayed for {food}.",
                                   "{q} lent {him} a plough, and {he} lent {q} {+thing}.",
                                   "At {fair} the {animal} broke loose and ran through the {building}.",
                                   "For {n} winters {p} stored {crop} under {+quality} floor of {material}.",
                                   "The dog slept beside {+thing} and woke only for {food}."};
static const char *const library[] = {
    "{P} looked after the library of {T}, {N} books in {n} cupboards of {material}.",
    "The library of {T} was opened in {y} above the {building}, where {P} had been {+trade}.",
    "In {month} {P} found a map of {T} behind {+quality} {thing}.",
    "The most borrowed book was about {crop}, and {Q} had it for {n} months.",
    "{He} stamped every page in {colour}, {manner}.",
    "{+adj} {trade} from {town} read only {time}, {reason}.",
    "Reading was allowed on {day}, but not with {food} on the table.",
    "{+animal} slept between the volumes on {material} and those on {town}.",
    "The chronicle of {y} mentions {weather}, {+animal} and the roof of the {building}.",
    "{q} returned a novel with {+thing} drawn on its last page.",
    "Fines were paid in {crop}, {n} for each week.",
    "{His} {kin} bound the newspapers of {town} in {colour} cloth, {remark}.",
    "A window had been broken during {fair}, and {+thing} held the cardboard in place.",
    "One shelf was reserved for {+trade} who wrote about {town}, {manner}.",
    "The catalogue was kept in {+thing}, {reason}.",
    "In {weather} half of {street} sat there {time}, because the stove was lit."};
static const char *const bridge[] = {
    "The bridge of {T} was rebuilt in {y} under {P}, {+trade} from {town}.",
    "{P} collected the toll on the bridge of {T}, {n} pence for {+animal}.",
    "Before {y} one crossed the river at {T} with {P}, whose ferry was {colour}.",
    "Its {n} arches are of {material}, {reason}.",
    "{Q} laid the last stone {manner}, with {N} people watching from {street}.",
    "In {month} a raft from {town} struck the middle pillar, {remark}.",
    "{p} lit the lamps {time}, the first one beside the {building}.",
    "{+quality} cart with {crop} was too wide by {n} inches, {remark}.",
    "The railing was painted {colour} for {fair}, {manner}.",
    "Masons from {town} lived in the {building} and ate nothing but {food}.",
    "Whoever carried {+thing} across on {day} paid nothing, {reason}.",
    "During {weather} the {trade} of {street} refused to cross.",
    "{q} claimed that {N} bats lived under it, and {p} counted {n}.",
    "{His} {kin} fished from it in {month} and caught {+thing}.",
    "The {material} for the road to {town} was brought by {+animal}.",
    "{+adj} engineer tested it with {N} sacks of {crop} and {+thing}."};
static const char *const inn[] = {
    "{P} ran the inn on {street} in {T}, {n} rooms and a kitchen with {+thing}.",
    "The inn of {T} was known for {food}, which {P} cooked {time}.",
    "In {y} {P} inherited an inn in {T} from {his} {kin}, {remark}.",
    "Room {n} had {+quality} {thing} and a view of the {building}.",
    "{Q} always ordered {food} with {crop}, {manner}.",
    "On {day} the table by the window belonged to the {trade} of {street}.",
    "A guest from {town} stayed for {n} weeks, {reason}.",
    "{p} wrote the bill on {colour} slate and added {N} crowns for the {animal}.",
    "When {weather} kept everyone inside, {q} told the story of {+thing} from {town}.",
    "The cellar was cut into {material} and held {crop}, wine and {+thing}.",
    "{His} {kin} carried the {food} across the yard {time}.",
    "After {fair} there were {N} plates to wash, {remark}.",
    "{+animal} came to the back door every {day} for {food}.",
    "Travellers to {town} were given {crop} for the road and {+quality} map.",
    "The sign showed {+animal} holding {+thing}, {reason}.",
    "In {month} {+adj} {trade} broke the {thing} and paid for it with {material}."};

const struct topic prose_topics[] = {
    TOPIC(harbour, 3), TOPIC(market, 3),  TOPIC(school, 3), TOPIC(mill, 3),   TOPIC(workshop, 3),
    TOPIC(railway, 3), TOPIC(weather, 3), TOPIC(music, 3),  TOPIC(garden, 3), TOPIC(post, 3),
    TOPIC(farm, 3),    TOPIC(library, 3), TOPIC(bridge, 3), TOPIC(inn, 3)};
const size_t prose_n_topics = COUNT(prose_topics);
