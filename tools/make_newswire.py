"""Write the embedded corpus: 400 sentences of invented newswire with names in IOB2.

    python tools/make_newswire.py            # rewrite bayeseq/data/newswire.conll
    python tools/make_newswire.py --check    # exit 1 if the file differs from what would be written

The corpus is made from the hand-written stories and name lists below and a fixed seed, so it is
free of anyone's terms and the same, byte for byte, everywhere. Nothing in it is real: every person,
place and organisation is invented.

How the names are annotated
---------------------------
PER   persons, without titles: "Mrs" is outside, "Edda Marlow" inside, so are "van der" and "al-".
LOC   countries, regions, towns, rivers, mountains, streets, buildings, stations.
ORG   companies and their brands, banks, universities, agencies, courts with a name, parties,
      newspapers, unions, and clubs, even when a club is called by its town alone.
O     everything else, capitals or not: days, months, nationalities, "Kestrin-based", events
      ("the Tarvik Open"), ships, horses, products, laws.
A name is one span with all its parts: "University of Kestrin" and "Bank of Norland" are one ORG.

What makes it hard on purpose
-----------------------------
Surnames that are also towns and companies; clubs called by their town; ordinary words as names
(May, Grant, Hope); brands without capitals; headlines in capitals; sentence starts; acronyms;
places inside names of events; and lists long enough that many names of the test part are new.

How a story is written
----------------------
Blank lines part stories, lines part the sentences of a story, an indented line goes on with the
sentence above. ``[a|b|]`` picks one; ``{p}`` is a person, ``{p2}`` another, ``{p.last}`` the first
one's surname, and so on for every kind in ``KINDS``; a name keeps its identity within its story.
``{#3-20}`` is a number, ``{day}`` and the other keys of ``WORDS`` are words outside of names, and
``^`` puts a sentence in capitals.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

SEED = 21
N_SENTENCES = 400
REUSE = 0.7  # how often an old name comes back: some names are always in the news
TARGET = Path(__file__).resolve().parents[1] / "bayeseq" / "data" / "newswire.conll"

Token = tuple[str, str]
Forms = dict[str, str]
Item = TypeVar("Item")


def words(text: str) -> list[str]:
    """The words of a text, parted by spaces."""
    return text.split()


def names(text: str) -> list[str]:
    """The names of a text, parted by commas, since a name may have spaces."""
    return text.split(",")


# --- Persons: worlds of sound, each with women's and men's first names and surnames -------------

WORLDS: tuple[tuple[str, str, str], ...] = (
    (
        "Edda Maud Tilda Isolde Lorna Odette Nell Hester Imogen Beryl Philippa Tamsin Verity",
        "Harlan Corwin Alden Perrin Wendell Barnaby Garrick Rufus Clement Silas Tobias Denholm",
        "Brackley Pemcott Whitcombe Ashwold Thornley Stradwick Wexmoor Coldham Fenwright Halsted "
        "Underlow Garsby Tranmore Lidgate Hobley Quarrington Dunmere Applecroft Rudge Skelling",
    ),
    (
        "Signe Ilse Henrike Jorunn Liv Ragna Birte Solvei Anneke Mette Grethe Ylva Dagny Trude",
        "Anders Torvald Matthis Kaspar Ulf Emmerich Detlev Joost Sievert Eskil Halvard Reinout",
        "Brannholt Lindqvarn Vestergraf Storvik Grimsgaard Eikmann Rothwald Kesselgau Oosterlinck "
        "Haverkamp Nordahlen Tjelstad Weddinghold Skovmark Bergsla Dreyhaupt Vinterholt Hjelmstad",
    ),
    (
        "Elisea Ottavia Lucinda Noémie Inès Celestina Delphine Serafina Graciela Maëlle Fiorella",
        "Ramiro Fabrice Thiago Aurelio Gaspar Rui Anselmo Étienne Leandro Baptiste Cosimo Nuno",
        "Valdanova Montegas Ferrucci Castelarte Belmeiro Serrandoli Perretti Corvando Laumière "
        "Tavaron Quintarelo Desrochettes Bragança Salviero Pellegrat Marchesan Albarrín Nogaredo",
    ),
    (
        "Bohdana Katya Jarmila Ludmila Vesna Oksana Zdena Milica Halina Radka Danuta Yevgenia",
        "Lev Zoran Stanimir Radek Yaromir Dragan Bogumil Vasko Ondrej Tomislav Grigor Wiktor",
        "Korvatsky Belenko Dubrović Zelanov Mirchek Volostny Hrankov Petrashin Jagodzin Sobolyar "
        "Kaczorek Vrbaslav Lutsenov Radomirek Tymchak Ostrovan Gradinić Wolkowiak Zhelevar",
    ),
    (
        "Leyla Nadira Yusra Salma Jamila Zaynab Rania Hafsa Samiha Dunya Amal Nour",
        "Samir Idris Tariq Hadi Rashid Karim Yunus Bilal Faris Munir Anwar Ziad",
        "al-Harun al-Tamir al-Sahriq al-Marwadi Benhalima Haddarin Khorami Tanouri Qasravi "
        "Mansurabi el-Badrin Zerrouni Shahbandi Farhoudi",
    ),
    (
        "Mikiko Sorano Tae-rim Mei-shan Ayuka Hwa-jin Lian-hua Chizuno Seo-yun",
        "Haruo Jin-wol Kenzaru Wei-ling Dong-hae Takumaro Bao-shen Ichirota Min-gyu",
        "Toranaka Mishibori Okinaze Shirabane Pyo Gwan Luoh Hanemori Tsukibara Kwaan Zhuo Nagihara",
    ),
    (
        "Thandeka Nalesha Zanele Chidera Amahle Folasha Wanjira Adwoa Tendai",
        "Amadou Kwabi Olufemi Baraka Mosi Sipho Kofi Temba Ousmane Jabari",
        "Ndarami Okwembe Mbalenzi Adekoro Tshowane Kamaziri Abenyo Sowandi Nkurobe Diallore "
        "Oyelami Mutasewa",
    ),
    (
        "Meenal Arundhi Sulekha Kavya Ishani Revathi Nandini Tanuja",
        "Arvind Rohan Devdan Suresh Mohit Prakash Jayant Vikram",
        "Venkatora Bhattanur Kulwadi Deshwari Iyerkar Ramanjit Chaudrani Pillanand Sengarup",
    ),
)
# Surnames that are also towns and companies, and ordinary words that are also names. Of the latter
# only one goes into a full name, beside an invented or rare one, so that nobody real is named.
TWINS = words("Marlow Halden Tessel Corvane Harcott Selby-Moor Varrick Calder Tolland Aldery")
WORD_SURNAMES = words(
    "May Grant Rose Banks Summer Winter Price Stone Hope Field Bishop Major Judge Law Early Moon "
    "Waters Church Page Marsh Bank Close Frost Little Park Best Street Savage"
)
WORD_FIRST_NAMES = "Grace Hope April June Dawn Faith Summer", "Mark Will Bill Frank Art Rich Pat"
PARTICLES = {1: ("van der", "von", "van", "ter"), 2: ("de la", "di", "del", "da")}  # by world
SURNAME_FIRST = 5  # the world that writes the surname before the first name

# --- Places -------------------------------------------------------------------------------------

COUNTRIES: tuple[Forms, ...] = tuple(
    dict(zip(("name", "adj", "people"), row.split("/"), strict=True))
    for row in words(
        "Norland/Norlandic/Norlanders Sarvia/Sarvian/Sarvians Veldmark/Veldish/Veldmarkers "
        "Orlanda/Orlandan/Orlandans Toskaya/Toskayan/Toskayans Meridane/Meridanese/Meridanese "
        "Ambria/Ambrian/Ambrians Qadesh/Qadeshi/Qadeshis Lokwana/Lokwanan/Lokwanans "
        "Tenmaru/Tenmarese/Tenmarese Estravia/Estravian/Estravians Ulvania/Ulvanian/Ulvanians "
        "Brevony/Brevon/Brevons Kharistan/Kharistani/Kharistanis"
    )
)
TOWNS = names(
    "Kestrin,Tarvik,Marlow,Brannholt,Lyssen,Oskara,Port Amrel,Halden,New Dunmere,San Orello,"
    "Belograv,Tessel,Hanamori,Lokwembe,Stanmere,Ust-Varga,Pontevarro,Villa Serrat,Qasr Imra,"
    "Grimsund,Wexcombe,Lindmoor,Ndarisa,Monte Lirio,Harcott,Sollenau,Dravosk,Aldery,Corvane,"
    "Kirkwold,Eastmere,Beit Nahur,Saint-Aubrac,Tolland,Vasterhamn,Zelengrad,Calder,Ashmouth,"
    "Thornwick,Porto Selva,Varrick,Rask,Umm Tarif,Kyomura,Nether Wyne,Oldenkirch,Bramford Quay,"
    "Ostwin,Santa Ilaria,Jablonec Dol,Muhembo,Pellmark,Cradock Hill,Silverton Bay,Hope,"
    "Lowmarket,Tarn,Sandry,Église-Haute,Kaltenbrück,Vorosk,Selby-Moor,Amberley Cross,Dunwater,"
    "Greyport,Fort Ellis,Kuznets,Rimfax,Laguna Roja,Al Marra,Mbeko,Shirotsu,Bishop,Early"
)
REGIONS = names(
    "the Ansk valley,Upper Marlow,Serra Alta,North Halden,Southmarch,Lower Sarvia,the Tarn Hills,"
    "East Brevony,Gannet Island,the Drava plain,Val d'Orsa,Inner Kharistan,Hopewell County,"
    "Westerfold,the Qadesh desert,the Isle of Rask"
)
WATERS = names(
    "Lake Tolm,the Gulf of Amrel,Morrow Bay,the Strait of Oskara,the Grey Coast,the Sea of Lirio,"
    "Cape Hanamori,the Marlow Sound"
)
STREETS = names("{s} Street,{s} Square,{s} Road,{s} Lane,{t} Parade,Avenue {d}")
GROUNDS = names("{s} Park,{s} Stadium,{t} Arena,{s} Road,the {s} Oval")
BUILDINGS = names("{s} Hall,{t} Cathedral,the {s} Theatre,{t} Castle,{s} House,{t} Abbey")
STATIONS = names("{t} Airport,{t} Central Station,Pier {d},{s} Street Station,{t} Ferry Port")
RIVERS = names("the River Wyne,the Ansk,the River Tolm,the Drava Canal,the Marlow,the Little Orsa")

# --- Organisations ------------------------------------------------------------------------------

ROOTS = words(
    "Corvane Aurivo Tessel Vantrell Quillon Marlow Nordalux Brightmoor Halden Pellmark Omnerel "
    "Castelvar Ravelock Thimble Sunder Tolland Ferrowick Hedgerow Delphar Almanac Zemtek Varrick "
    "Kinfold Calder Solvane Hexholm Brasswell Meridoc Ostwin Crosswater Triskova Ladder Harcott "
    "Reedwater Polveld Grant Winter Stone Arboquil Frost Bryndal Lumerick Wadja Tatsumo Kivero"
)
FIRM_ENDINGS = names(
    "Group,Holdings,Steel,Airlines,Foods,Bank,Energy,Motors,Insurance,Software,Pharma,Ltd,Inc.,"
    "plc,AG,SA,Logistics,Telecom,Mining,Capital,Shipping,Partners,& Sons,Brothers,Stores,Press"
)
BRANDS = words("lumivo qerra yundle tamquil nettle fennik ozzat plinkt teasel sorrel kuppa")
UNIVERSITIES = names(
    "the University of {t},{t} University,the {s} Institute,{s} College,the University of {n},"
    "the Institute for {n.adj} Studies,{t} Technical College"
)
HOSPITALS = names("{t} General Hospital,St. Hedda's Hospital,{s} Clinic,the {t} Infirmary")
MUSEUMS = names(
    "the National Gallery of {n},the {t} Museum of Glass,the {s} Collection,the Academy of Arts,"
    "the Royal Society of {n},the House of Clocks"
)
STAGES = names("{t} Opera,the {t} Philharmonic,the {s} Players,the National Ballet of {n}")
RAILWAYS = names("the {n} Rail Inspectorate,{n} Railways,the Transit Board,{t} Tramways")
SCHOOLS = names("{t} High School,{s} Academy,St. Ottilia's School,{t} Girls' School")
REGULATORS = names(
    "the Public Audit Office,the {n} Rail Inspectorate,the Agency for Food Safety,"
    "the Markets Board,the Joint River Commission,the Office for Fair Trading,"
    "the {t} Chamber of Commerce"
)
SURVEYS = names(
    "the Polar Survey Institute,the {n} Space Agency,the Northern Sky Institute,"
    "the {s} Ice Observatory,the Earth Science Bureau"
)
STATISTICIANS = names(
    "the Central Statistics Bureau,the Labour Office,the Ministry of Trade,the Census Board"
)
UNIONS = names(
    "the Union of Dock Workers,the Confederation of Teachers,the Council of Free Unions,"
    "the Federation of Small Growers,Fair Pay {t}"
)
SPORT_BODIES = names(
    "the {n} Football Union,the World Sailing League,the {n} Cycling Union,the League of Clubs,"
    "the {n} Athletics Federation"
)
RESCUERS = names(
    "the Air Accidents Bureau,the {n} Rescue Service,Help Now,the Order of Saint Hedda"
)
COURTS = names(
    "the {t} District Court,the Supreme Court of {n},the {t} Court of Appeal,the High Court"
)
CENTRAL_BANKS = names("the Bank of {n},the Central Bank of {n},{n} National Bank")
PARTIES = names(
    "the Green Accord,the People's Alliance,the Liberal Compact,the Growers' League,"
    "the Reform Bloc,New Dawn,Unity,Forward,National Renewal,the Social Centre Party,"
    "the Workers' Front,Free {n},Hope,the Island Party,Common Sense"
)
MEDIA = names(
    "the {t} Herald,the Evening Lantern,the {t} Courier,Radio {t},{n} Today,the Harbour Gazette,"
    "the Daily Plough,the {t} Star,Channel Forty,the Financial Compass,the {n.adj} Press Service"
)
CLUB_ENDINGS = words("Rovers United Wanderers City Athletic FC Harriers Albion")
CLUB_STARTS = names("Sporting,Dynamo,Union,Red Star,Racing")

# --- Words outside of names ---------------------------------------------------------------------

WORDS: dict[str, Sequence[str]] = {
    "day": words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "month": words("January February March April May June July August September October"),
    "pct": [f"{whole}.{tenth}" for whole in range(1, 48) for tenth in (2, 4, 7, 9)],
    "money": [
        f"{amount} {unit}"
        for amount in ("2.4", "11", "36", "58.5", "120", "310", "475", "1.2", "7.8", "90")
        for unit in ("million crowns", "million marks", "billion crowns", "million florins")
    ],
    "score": words("1-0 2-0 2-1 3-1 3-2 4-0 4-2 5-1"),
    "sets": ["6-4 7-5", "6-2 6-3", "7-6 4-6 6-1", "6-0 6-4", "3-6 6-3 7-5"],
    "cup": names(
        "Tarvik Open,Marlow Cup,Kestrin Marathon,World Rowing Championships,Halden Classic,"
        "Grand Prix of Sarvia,Winter Games"
    ),
    "feast": names(
        "Festival of Lights,Golden Reed Awards,Lyssen Book Fair,Feast of Saint Hedda,Harvest Ball,"
        "Summer Song Contest"
    ),
    "product": names(
        "Corvane 5,Tessel Runner,Halden Mark II,Aurivo Sport,X-40 tablet,Marlow Light,Zemtek One"
    ),
    "ship": names("Northern Hope,Sea Rose,Pride of Tarvik,Marlow Star,Queen Ottavia,Grey Heron"),
    "horse": names("Summer Rain,Iron Bishop,Grey Marlow,Lady Kestrin,Never Early"),
    "prize": names("Brannholt Prize,Marlow Medal,Okwembe Award,Rose Prize"),
    "ordinal": words("second third fourth fifth sixth seventh"),
    "law": names("Clean Rivers Act,Fair Rents Bill,Night Work Order,Ports and Harbours Act"),
}

STORIES = r"""
{p} , the [new|former|acting] [mayor|governor] of {t} , [resigned|stood down] on {day} after [a
  row over|questions about] the cost of [a tram line|the harbour wall|two new schools] .

The government of {n} [approved|rejected] a plan on {day} to [sell|close] {#3-20} state-owned
  [mines|mills|ferries] .
Finance Minister {p} said the [measure|decision] would save {money} over four years .

{p} of {y} won the {t} seat with {#31-69}.{#1-9} percent of the vote , ahead of {p2} of {y2} .

" We will not be hurried , " {p.last} told reporters in {t} .

Prime Minister {p} flew to {t} on {day} for talks with {n.adj} President {p2} on [fishing
  rights|gas prices|border crossings] , officials said .
" {p2.last} knows what we want , " one of them added .

Will {p.last} run again ?

{n} has recalled its ambassador from {n2} , the foreign ministry in {t} said .

{y} , which governs with {y2} , lost {#2-9} seats in {r} .

^ {t} mayor quits over [bridge|tram|water] bill

^ {p.last} [denies|rejects] claims of vote buying in {t}

Asked whether {n} would sign the treaty , {p.last} said only : " Read the text . "

[A spokesman|A lawyer|An agent] for {p} declined to comment .

{p.last} , {#48-79} , has led {y} since {#1998-2019} .

Lawmakers voted {#60-90} to {#20-59} to [censure|dismiss] Interior Minister {p} , whose handling
  of the {t} floods was [criticised|condemned] by all parties .

{t} wants more [money|police] , {t2} wants less , and {t3} has not replied .

Neither {n} nor {n2} has said when the [trade|border] talks will resume .

In a letter to {m} , former senator {p} accused {regulator} of hiding [two reports|a report] on
  [water quality|prison deaths] .

{regulator} ( {regulator.acro} ) said it would appeal against the ruling .
The {regulator.acro} has [lost|won] {#3-8} such cases since {#1998-2019} .
{regulator.acro} inspectors were refused entry to the {t} site last week .

Members of {y} chose {p} as leader on {day} by {#120-300} votes to {#20-119} .
{p.last} , who [grew up|was born] in {t} , promised " a louder opposition " .
" {p.first} has never lost a vote , " said {p.his} brother .

The {law} takes effect in {month} , [not|or perhaps] in {month2} .

{p} and {p2} , both deputies from {r} , crossed the floor to join {y} .

{y} is finished , according to {p.last} .

Voters in {t} , {t2} and {r} go to the polls on {day} to elect {#40-90} councillors .

It was {p.last} who asked {p2.last} to withdraw , not the other way round .

{p.last} says no .

The {n.adj} parliament was dissolved on {day} , {#3-9} months before its term was due to end .

{n.people} living abroad [may|will] vote by post for the first time this {month} .

Turnout was {#50-89}.{#1-9} percent in {t} but only {#21-49}.{#1-9} percent in {t2} , election
  officials said .

President {p.last} 's motorcade was held up for an hour on {street} by a [flock of geese|burst
  pipe] .

Who is {p} ?
A former [dentist|ferry captain|hurdler] with no party , no programme and {#20-80},000 votes .

[Opposition|Government] leader {p} called the {law} " a gift to {c.short} and to nobody else " .

Talks between {y} and {y2} broke down late on {day} , {m} reported .

{t.up} , {month} {#1-28} - {p} was sworn in as president of {n} on {day} before {#200-900} guests
  .

{t.up} , {month} {#1-28} - Police fired [tear gas|water cannon] at [students|farmers] outside
  parliament on {day} , witnesses said .

{t.up} ( {m.bare} ) - Members of {y} will not take part in the [autumn|spring] election .

{n} and {n2} signed a [customs|fishing] accord in {t} on {day} after {#2-9} years of talks ,
  ending a quarrel that began when {n} closed {sea} to foreign trawlers .

Deputy Mayor {p} , of {y} , said {t} could not wait for {n} to act .

The speaker , {p} , [suspended|closed] the sitting after {p2.last} threw a [shoe|bound volume] .

{t} and {t2} have swapped mayors : {p} goes west , {p2} goes east .

Ministers from {n} and {n2} met in {t} on {day} , but {p} , who was to have [led|opened] the talks
  , stayed at home , and {p.his} deputy , {p2} , read a short speech .

Nothing in the {law} , {p.last} said , prevents {regulator} from fining {c} .

{k} {#0-4} {k2} {#0-4}

{k} {#0-4} {k2} {#0-4} ; {k3} {#0-4} {k4} {#0-4}

{k} beat {k2} {score} on {day} to go top of the [second division|league] .

{p.last} scored twice as {k} came from behind to beat {k2} {score} at {ground} .

{k} have signed [goalkeeper|midfielder|winger] {p} from {k2} for {money} .
{p.last} , {#18-33} , has played {#12-70} times for {n} .

{k} coach {p} blamed the [pitch|referee|wind] after {p.his} side lost {score} in {t} .

{p} ( {n} ) beat {p2} ( {n2} ) {sets}

1. {p} ( {n} ) {#41-59}.{#10-99} seconds
2. {p2} ( {n2} ) {#41-59}.{#10-99}

Ticket sales for the {cup} in {t} start on {day} .

{p.last} , {p2.last} and {p3.last} all missed penalties .

{k} were without {p} , who [broke a finger|tore a muscle] in training , and {p2} , who is
  suspended .

{t} will host the {cup} in {#2023-2029} , {sport} announced .

{n.adj} sprinter {p} ran the 200 metres in {#19-21}.{#10-99} seconds in {t} on {day} , the fastest
  time this year .

^ {k} sack {p.last} after {#3-9} defeats

Striker {p} has left {k} for {k2} , [both clubs|{m}] said .

{k} 's ground is too small for the cup final , {sport} ruled on {day} .

Half-time : {k} {#0-2} , {k2} {#0-2} .

The referee , {p} of {t} , sent off {p2.last} in the final minute .

" I have never seen {k} play so badly , " said {p} , a season-ticket holder since {#1974-2015} .

Rain stopped play at {ground} with {k.town} on {#90-300} for {#2-9} and {p} not out {#20-99} .

{p} rode {horse} to victory in the [Halden Classic|Rose Stakes|Marlow Cup] at odds of {#5-30} to 1
  .

{p} of the {c} team won the {ordinal} stage , {#80-200} km from {t} to {t2} , in a sprint finish .

Scorers : {k} - {p.last} , {p2.last} ; {k2} - {p3.last}

Standings : {k} {#40-60} points , {k2} {#30-39} , {k3} {#20-29} .

{k} host {k2} on {day} , and {t} police expect a large crowd .

{k.town} travel to {t} on {day} without their captain .

{p} drew with {p2} in {#20-70} moves in the {ordinal} round at {t} .

{p} , known to boxing fans as " the Rose of {t} " , died in {t2} at the age of {#60-89} .

Can {k.town} stay up ?

{k.town} need a point ; {k2.town} need a miracle .

{p} will miss the {cup} with a knee injury , {p.his} club {k} said .
{p.first} is expected to be fit again by {month} .

On the bench : {p.last} , {p2.last} , {p3.last} .

{k} won {#12-16} of their {#17-19} home games , and {k2} none .

Swimmer {p} , who trains in {t} , set a {n.adj} record of {#50-59}.{#10-99} seconds .

{k} fans who travelled to {t} by train [sang|queued] all night outside {ground} .

Draw for the quarter-finals : {k} v {k2} , {k3} v {k4}

The bout between {p} and {n.adj} champion {p2} has been moved to {t} .

{p.last} to {p2.last} , {p2.last} to {p3.last} , and the ball was in the net .

{k} is more than a club in {t} , where {p.last} was once mayor .

{sport} has banned {p} of {k} for {#3-9} matches for [biting|pushing] {p2.last} .
" {k.town} will appeal , " a club official said .

{c} said on {day} its [first-quarter|half-year|annual] profit [rose|fell] {pct} percent to {money}
  .

Shares in {c.short} [jumped|slid] {pct} percent in {t} after the [company|firm] warned of [falling
  demand|higher costs] .

{c} will buy {c2} for {money} in cash , the two companies said on {day} .
{c.short} already owns {pct} percent of {c2.short} .
{regulator} must approve the deal before {month} .

{b} , the [music|food delivery|payments] start-up founded by {p} , will open an office in {t} .

{b} has {#2-50} million users and no profit .

Nobody at {b} answered the telephone on {day} .

Investors including {c} and the {p.last} family put {money} into {b} last {month} .

{p} , chief executive of {c} , will retire in {month} and be succeeded by {p2} , who runs the {t}
  office .

{bank} [raised|cut] its main interest rate to {#1-9}.{#10-90} percent on {day} , the {ordinal}
  such move this year .

{bank} is expected to leave rates unchanged , said {p} , an economist in {t} .

Analysts at {c} cut their forecast for {c2.short} , citing weak sales of the {product} .

Some {#200-900} workers at {c} 's {t} plant walked out on {day} over [pay|overtime|rest breaks] .
{union} , which speaks for most of them , said the strike would last until {c.short} " sees sense
  " .

{t.based} {c} has won an order worth {money} from {n} for {#20-90} [buses|turbines|trams] .

Closing prices : {c.short} {#10-99}.{#10-99} , {c2.short} {#10-99}.{#10-99} , {c3.short}
  {#10-99}.{#10-99} .

^ {c.short} to cut {#200-900} jobs in {t}

^ {c.short} shares sink as {bank.bare} holds rates

{p.last} sold {p.his} stake in {c.short} to {p2} , a [grain|timber] trader from {r} .

{c} and {c2} are to merge .

A {c.short} spokeswoman said the {product} would go on sale in {n} in {month} .

Unemployment in {n} fell to {#2-14}.{#1-9} percent in {month} , {statistics} said .

Will {c.short} survive ?

The crown closed at {#2-3}.{#10-99} to the mark in {t} , little changed from {day} .

{c} named {p} , formerly of {c2.short} , as finance director .

" {c.short} was my life , " said {p} , who [founded|joined] the company in {#1974-2010} and
  [left|was forced out] last {month} .

Trading in {c} was halted in {t} on {day} at the request of {regulator} .

The shipbuilder , owned by {p} and {p.his} sister {w.first} , employs {#300-900} people in {t} .

{c} has moved its head office from {t} to {t2} , where rents are lower .

Prices of wheat from {r} rose again , traders in {t} and {t2} said .

{c.short} , {c2.short} and {b} all declined to comment .

{c} opens its first office in {t} on {day} , a [short walk|few steps] from {station} .

Orders : {c} , {#20-90} jets , {money} ; {c2} , {#2-19} jets , price not given .

{p} 's family , which controls {c} , has asked {bank} for help .

Sales of the {product} have doubled since {month} , {c.short} said in a statement .

Of the {#4-9} bidders , only {c} and {b} are still in the race , {m} reported , quoting people
  close to the sale .

A court in {t} sentenced {p} , {#24-60} , to {#3-20} years in prison on {day} for [fraud|arson|the
  theft of two paintings] .

Judge {p} adjourned the trial until {day} because a juror was ill .

{p.last} [denies|admitted] all {#3-12} charges .

Prosecutors say {p} hid {money} in accounts in {n} and {n2} between {#1990-2004} and {#2005-2019}
  , when {p.he} was treasurer of {y} .
{p.last} 's lawyer , {p2} , said the money belonged to {c} .

The case is {p.last} against {c} .

Police in {t} arrested {#2-9} men on {day} after a raid on a warehouse near {station} .

{p} , of {street} , {t} , was fined {#200-900} crowns for [keeping|selling] an otter .

{court} overturned the conviction of {p} , a nurse at {hospital} , who had spent {#4-12} years in
  prison .

Witness {p} told the court that {p2.last} " smiled and drove away " .

Detectives want to speak to {p} , also known as {p2} , who was last seen on {street} .

Is {p.last} a forger ? The jury will decide .

{museum} has been ordered to return a {#400-900}-year-old bronze to {n} .

{p} was found guilty ; {p2} and {p3} were cleared .

Two men escaped from {t} prison on {day} , one of them hidden in a laundry basket .

The body was identified as that of {p} , {#24-60} , a driver for {c} .

Rain .

Fog , then sun .

{t} {#2-19} , [cloudy|rain|sunny] ; {t2} {#2-19} , [windy|snow|fog] .

Heavy snow cut off villages in {r} and closed {station} for {#3-12} hours on {day} .

Storm [April|Bishop|Dawn] reached the coast of {n} early on {day} with winds of {#90-180} km an
  hour .

Forecasters expect frost in {r} and sunshine in {t} .

{river} burst its banks near {t} , flooding {#40-300} homes .

An earthquake shook {r} on {day} but caused no damage , {survey} said .

In {t} it was the wettest {month} since records began in {#1874-1960} .

Summer came late to {t} , and winter early .

Temperatures fell to {#10-30} degrees below zero in {t} , where schools were closed .

{p} , whose novel " The [Salt|Winter|Second] [Road|House|Bridge] " sold {#2-9} million copies ,
  has died in {t} at {#80-95} .
{p.last} was born in {t2} in {#1925-1939} , the {ordinal} child of a [tailor|lock-keeper] .
{p.he} studied law at {uni} and worked for {m} before turning to fiction .
{p.last} never married .

Died : {p} , [conductor|botanist|test pilot] , in {t} , aged {#60-99} .

{p} , who designed {building} and the {t} library , died on {day} after a long illness .

The painter {p} is survived by {p.his} daughters , {w.first} and {w2.first} .

[Soprano|Pianist|Violinist] {p} will open the season at {stage} on {day} .

{museum} has bought a portrait of {p} by an unknown {n.adj} master for {money} .

{p.last} 's new film , shot in {r} , is [slow|long] , [grey|wet] and wonderful .

The {prize} went to {p} for " [Harbour Lights|A Year of Bread|Little Wolf] " .

{p.first} , the singer who filled {ground} three times last {month} , has cancelled a tour of {n}
  .

" Art should bite , " says {p} .

An exhibition of maps from {r} opens on {day} at {museum} in {t} .

The lead role , first offered to {p} , will be sung by {p2} .

{p} plays the bishop , {p2} the judge , and young {p3} the thief .

The band , two brothers from {t} and a drummer named {p.first} , met at the {feast} .

Critics at {m} and {m2} disagreed .

{c} has ended its contract with {p} after a threat from {p2} 's lawyers .

Scientists at {uni} have found a [frog|beetle|moss] in {r} that [glows|whistles] in the dark .

{p} , a biologist at {uni} , said the [fish|moth] was named after {p2} , who first drew it in
  {#1874-1960} .

A team led by Professor {p} measured ice on {sea} for {#4-12} years .

{survey} ( {survey.acro} ) will launch a satellite from {r} in {month} .
{survey.acro} director {p} called the price , {money} , " about one bridge " .

Vaccines made by {c.short} were [recalled|withdrawn] in {n} on {day} .

Doctors at {hospital} in {t} separated twins born joined at the hip .

Dr {p} and Dr {p2} share this year 's {prize} for chemistry .

The comet will be visible from {n} until {month} {#1-28} .

Does coffee help ? Not much , says a study of {#300-900} {n.people} .

Researchers from {uni} tested {#40-90} wells between {t} and {t2} and found lead in {#12-39} of
  them , far more than {p} , the minister , had told parliament in {month} .

A {c.short} jet with {#90-300} people on board landed safely at {t} on {day} after losing an
  engine .

The {t} to {t2} express was {#2-9} hours late on {day} .

Two trains collided near {t} , killing {#2-19} people , {rescue} said .
Among the dead was {p} , {#24-60} , a signalman from {t2} .

The ferry {ship} , bound for {t} with {#40-300} passengers , ran aground off {sea} .

Drivers should avoid {street} , where work on the sewers begins on {day} .

{c.short} will fly daily from {t} to {t2} from {month} .

Flights were delayed when a [swan|fox] sat on the runway at {t} .

{rail} wants to close {#3-9} stations between {t} and {r} , among them {t2} and {t3} .

Strike at {t} port ends .

The {ship} , owned by {c} , left {t} on {day} and has not been heard from since .

A bus carrying pupils from {school} overturned on a mountain road in {r} on {day} , injuring
  {#12-39} of them and their teacher , {p} .

Buses , not trams , are what {t} needs , says {p} , who drives one .

Fire destroyed a [warehouse|timber yard] owned by {c} on {street} in {t} .

{p.first} , {#4-9} , rescued {p.his} grandmother from a well in {t} .

Thousands marched through {t} on {day} with banners that read " {p.last} out " and " Bread " .

Aid for {r} has reached {t} , {rescue} said , but the road to {t2} is still cut .

Paper crowns , goats and a brass band : {t} is ready for the {feast} .

{p.last} was seen in {t} on {day} , in {t2} a week later , and nowhere since .

Nine miners were freed in {r} .

The {w.last} sisters , {w.first} and {w2.first} , have bought {building} .

{n} celebrates its national day on {month} {#1-28} .

Pupils of {school} sent {#200-900} letters to {p} , who answered every one .

Who owns {building} ?

[Monday|Tuesday|Sunday] is a holiday in {n} .

{p.mr} {p.last} , the [landlord|baker|vet] , said {p.he} heard nothing .

Mother Superior {w.first} , who runs {hospital} , said the roof would not last the winter .

" Ask {p.first} , " said the [barman|caretaker] at {building} .

" {t} is not for sale , " said {p} , to cheers .

A statue of {p} , first governor of {n} , was pulled down in {t} overnight .

Refugees from {n} are sleeping in {building} and at {school} .

{c} gave {money} to {uni} in memory of {p} , its founder .

In {t} alone , {#40-300} families have left for {n} since {month} , according to {statistics} .

Bread , salt and a [blue|red] ribbon were all that {p} carried from {t} to {t2} , a walk of
  {#12-39} days , to ask {p2} for the return of a [field|boat|bell] .

Correction : {p} is [treasurer|president] of {y} , not of {y2} , as reported on {day} .

See also : {t} , {p.last} , {c.short} .

Editing by {p}

( {m.bare} , {t} )

Reporting by {p} in {t} and {p2} in {t2}

{p.init} , {t}

Market prices were unchanged on {day} .

No one was hurt , officials said .

The Bishop said the church roof would be mended by Easter .

Summer sales begin on {day} , and the price of stone will rise in {month} .

" It may rain , " the judge said , " but the law is the law . "

He declined to say more .

Talks go on .

A decision is expected by the end of {month} .

The bank on the corner closed in {#1990-2019} ; the church next door is a [gym|bar] .

Prices will rise in {month} , the Major told the men , and the Judge agreed .

Parliament rises on {day} .

Exports to {n} of {n2.adj} [apples|clocks|cement] have halved , {p} of {c} said in {t} .

{n.adj} troops crossed {river} on {day} and took {t} without a shot , {p} , a {m.bare} reporter
  with the column , said by telephone .

Half of {t} 's water is lost through leaks , and {c.short} , which runs the pipes , blames the
  frost .

{p} , once a waiter at {building} , now owns {c} , {k} and most of {r} .

The {t2} branch of {union} elected {p} on {day} ; {p2} of {t} was second and {p3} third .

Nurses at {hospital} , porters at {station} and drivers at {c} will all be on strike on {day} .

Students occupied {uni} for a {ordinal} day and hung a portrait of {p.last} from the roof .

The owner of {k} , {p} , is also the landlord of {building} and a cousin of {p2} .

Some in {t} blame {n} , some blame {c.short} , and a few blame {p.first} .

For {p.last} , {t} was home ; for {p2.last} , a mistake .

{t} has its bridge , {p.last} has {p.his} medal and {c.short} has its money .

{p.last} left {c.short} for {c2.short} , and {c2.short} for {k.town} .

{p.last} and {c.short} agree on one thing : {t} must pay .

{t.up} - A {#60-99}-year-old woman has been reunited with a ring she lost on {street} in
  {#1950-1969} , {m} reported on {day} .

{union} has called a [march|vigil] through {t} for {day} , the day on which {p.last} is due to
  [leave|return to] {n} .

{w} , who wrote the book , and {w2} , who burned it , shook hands in {t} on {day} .

Dame {w} , Lady {w2.last} and the ambassador of {n} were among {#200-900} guests at {building} .

^ Two held after {p.last} raid in {t}

^ {n} signs {t} pact , {n2} stays away

^ [Floods|Fires] close schools from {t} to {t2}

^ Prices up again

Once , {t} had {#3-9} cinemas ; now it has {b} .

By noon {p.last} 's name , {c.short} 's flag and the mayor 's chair had all gone from {building} .

{survey.bare} director {p} , speaking in {n} , said {sea} was " not melting but leaving " .

Vote in {t} : {p} ( {y.bare} ) {#2000-9000} , {p2} ( {y2.bare} ) {#200-1900}

The price of [bread|milk|coal] in {t} has doubled in a year , and most families now spend more
  than half of what they earn on food and heating , a study by {statistics} found .

Two [sailors|climbers] who had been missing since {day} were found alive in {r} , cold and hungry
  but unhurt , a spokesman for {rescue} said .

The mayor said the old [town hall|market] would be pulled down in the spring and that a new one ,
  with room for {#40-300} stalls , would be built by {c} on the same site .

More than {#40-90} years after it was stolen , a small bronze horse has been returned to the
  family of {p} , who kept it on {p.his} desk in {t} .

For the first time in {#12-40} years there will be no music at the {feast} , because the town
  cannot pay the players and nobody in {t} knows the songs any more .

" I did what anyone would have done , " said {p} , a [postman|teacher|plumber] from {t} , who
  pulled three children out of the water and then went home to bed .

The minister , {p} , said {p.he} had no plans to resign and that the report , which {p.he} had not
  read , was wrong on every page .

It is not known how many people were in the building when the roof fell in , but {#12-39} were
  taken to {hospital} and most of them were allowed home on {day} .

A school for the deaf , the first in the north of {n} , opened in {t} on {day} with {#12-39}
  pupils and four teachers .

The talks , the {ordinal} this year , ended without a deal , and a senior official said both sides
  were as far apart as when they first met in {t} .

Nobody has claimed the prize of {money} , won with a ticket sold in {t} in {month} , and after
  {day} the money will go to the state .

Under the plan , which must still be approved by parliament , the army would lose {#20-59} of its
  tanks and all of its bicycles , and the base at {t} would be sold to {c} .

Police said they were looking for a tall man with a grey beard who had asked for {p.last} by name
  and then left on foot in the direction of {station} .

{p} said {p.he} was " surprised , but not very surprised " , by the decision of {court} to hear
  the case again .

On {day} the strike spread from {t} to {t2} , and by the evening most shops in the centre of both
  towns had closed their doors .

Heavy rain is expected in the west on {day} and in the east on {day2} , with snow on high ground
  and strong winds along {sea} .

The company , which makes [ladders|pianos|lifts] , said it would take on {#40-300} people at its
  works in {t} , where the last big employer , {c} , closed in {#1998-2019} .

What the two men said to each other in the lift at {building} is not known , but {p.last} came out
  first and did not wait .

{p} , {p.his} family , their dog and {#4-9} neighbours have been told to leave their homes on
  {street} by {day} .

The vote on the {law} was put off until {month} after several members complained that they had
  been given the wrong text .

Last {month} , {c} told its staff there would be no cuts ; this week it said that {#200-900} of
  them would go , most of them in {t} .

Fewer than half of the bridges in {n} are safe , {m} reported , and the oldest , in {t} , has not
  been inspected since {#1950-1990} .

A [wolf|lynx] has been seen three times this week in the hills above {t} , the first in {r} for
  more than {#60-150} years .

There was no answer on {day} at the home of {p} , and a note on the door said only that the cat
  had been fed .

The goal , a header by {p} ten minutes from the end , was the first that {k} had let in since
  {month} .

After the match the coach of {k.town} , {p} , said {p.his} players had run all day and deserved
  more than a point .

At the end of a long day {p.last} thanked the voters , the party and , after a pause , the rain .
"""


class Draw:
    """Random choices built on ``random.random`` alone, which is the same in every Python.

    ``past`` keeps the names already in the news, by kind: some of them come back.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self.past: dict[str, list[Forms]] = {}

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def number(self, low: int, high: int) -> int:
        return low + int(self._random() * (high - low + 1))

    def one(self, items: Sequence[Item]) -> Item:
        return items[int(self._random() * len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        keys = [self._random() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


# --- Names --------------------------------------------------------------------------------------


def make_person(draw: Draw, female: bool | None = None) -> Forms:
    """Forms of a person: full, first, last, init, and the words he, his and mr."""
    world_index = min(draw.number(0, 9), draw.number(0, 9)) % len(WORLDS)  # the first ones oftener
    world = WORLDS[world_index]
    female = draw.chance(0.45) if female is None else female
    first = draw.one(world[0 if female else 1].split())
    last = draw.one(world[2].split())
    rare = draw.number(0, 99)
    if rare < 20:
        last = draw.one(TWINS)
    elif rare < 30:
        last = draw.one(WORD_SURNAMES)
    elif rare < 36:
        first = draw.one(WORD_FIRST_NAMES[0 if female else 1].split())
    elif rare < 56 and world_index in PARTICLES:
        last = f"{draw.one(PARTICLES[world_index])} {last}"
    elif rare < 39:
        last = f"{last}-{draw.one(TWINS)}"
    full, init = f"{first} {last}", f"{first[0]}. {last}"
    if world_index == SURNAME_FIRST and rare >= 36:
        full = f"{last} {first}"
    elif draw.chance(0.07):
        full = f"{first} {draw.one('ABDEJKLMRT')}. {last}"
    elif draw.chance(0.08):
        full = init
    he, his, mr = ("she", "her", "Mrs") if female else ("he", "his", "Mr")
    forms = {"full": full, "first": first, "last": last, "init": init}
    return forms | {"he": he, "his": his, "mr": mr}


def make_woman(draw: Draw) -> Forms:
    return make_person(draw, female=True)


def make_town(draw: Draw) -> Forms:
    town = draw.one(TOWNS + TWINS)  # which puts the twins there twice
    return {"full": town, "up": town.upper(), "based": f"{town}-based"}


def make_company(draw: Draw) -> Forms:
    """A firm: its full name and the short name by which it goes."""
    style = draw.number(0, 99)
    if style < 60:
        short = draw.one(ROOTS)
        return {"full": f"{short} {draw.one(FIRM_ENDINGS)}", "short": short}
    if style < 72:
        short = draw.one(draw.one(tuple(world[2] for world in WORLDS[:4])).split())
        return {"full": f"{short} {draw.one(FIRM_ENDINGS)}", "short": short}
    if style < 84:
        town = draw.one(TOWNS)
        full = f"{town} {draw.one(FIRM_ENDINGS[2:12])}"
        return {"full": full, "short": full}
    if style < 90:
        short = draw.one(TWINS + WORD_SURNAMES)
        return {"full": f"{short} {draw.one(('&', 'and'))} {draw.one(TWINS)}", "short": short}
    short = draw.one(ROOTS if style < 95 else BRANDS)
    return {"full": short, "short": short}


def make_club(draw: Draw) -> Forms:
    town = draw.one(TOWNS + TWINS)
    style = draw.number(0, 99)
    if style < 55:
        full = town
    elif style < 88:
        full = f"{town} {draw.one(CLUB_ENDINGS)}"
    else:
        full = f"{draw.one(CLUB_STARTS)} {town}"
    return {"full": full, "town": town}


def fill_parts(draw: Draw, pattern: str) -> str:
    """Fill the parts of a compound name: {t} town, {s} surname, {n} country, {d} number."""
    nation = draw.one(COUNTRIES)
    surnames = TWINS + WORD_SURNAMES + " ".join(world[2] for world in WORLDS[:5]).split()
    return (
        pattern.replace("{t}", draw.one(TOWNS))
        .replace("{s}", draw.one(surnames))
        .replace("{n}", nation["name"])
        .replace("{n.adj}", nation["adj"])
        .replace("{d}", str(draw.number(2, 9)))
    )


def compound(patterns: Sequence[str]) -> Callable[[Draw], Forms]:
    def make(draw: Draw) -> Forms:
        full = fill_parts(draw, draw.one(patterns))
        capitals = "".join(word[0] for word in full.split() if word[0].isupper())
        return {"full": full, "bare": full.removeprefix("the "), "acro": capitals}

    return make


def make_country(draw: Draw) -> Forms:
    nation = draw.one(COUNTRIES)
    return {"full": nation["name"], **nation}


# A kind of name: its type and its maker. Forms in OUTSIDE are words, not names.
KINDS: dict[str, tuple[str, Callable[[Draw], Forms]]] = {
    "p": ("PER", make_person),
    "w": ("PER", make_woman),
    "t": ("LOC", make_town),
    "n": ("LOC", make_country),
    "r": ("LOC", compound(REGIONS)),
    "sea": ("LOC", compound(WATERS)),
    "street": ("LOC", compound(STREETS)),
    "ground": ("LOC", compound(GROUNDS)),
    "building": ("LOC", compound(BUILDINGS)),
    "station": ("LOC", compound(STATIONS)),
    "river": ("LOC", compound(RIVERS)),
    "c": ("ORG", make_company),
    "b": ("ORG", compound(BRANDS)),
    "k": ("ORG", make_club),
    "y": ("ORG", compound(PARTIES)),
    "m": ("ORG", compound(MEDIA)),
    "bank": ("ORG", compound(CENTRAL_BANKS)),
    "court": ("ORG", compound(COURTS)),
    "uni": ("ORG", compound(UNIVERSITIES)),
    "hospital": ("ORG", compound(HOSPITALS)),
    "museum": ("ORG", compound(MUSEUMS)),
    "stage": ("ORG", compound(STAGES)),
    "rail": ("ORG", compound(RAILWAYS)),
    "school": ("ORG", compound(SCHOOLS)),
    "regulator": ("ORG", compound(REGULATORS)),
    "survey": ("ORG", compound(SURVEYS)),
    "statistics": ("ORG", compound(STATISTICIANS)),
    "union": ("ORG", compound(UNIONS)),
    "sport": ("ORG", compound(SPORT_BODIES)),
    "rescue": ("ORG", compound(RESCUERS)),
}
OUTSIDE = {"he", "his", "mr", "adj", "people", "based"}
ARTICLES = {"the", "a"}


# --- Stories to sentences -----------------------------------------------------------------------


def read_stories(text: str) -> list[list[str]]:
    """The stories of the text, each a list of sentence patterns."""
    stories = []
    for block in re.split(r"\n\s*\n", text.strip()):
        stories.append(re.sub(r"\n\s+", " ", block).split("\n"))
    return stories


def choose_alternatives(draw: Draw, pattern: str) -> str:
    while "[" in pattern:
        pattern = re.sub(r"\[([^][]*)\]", lambda m: draw.one(m.group(1).split("|")), pattern)
    return pattern


def tag_name(name: str, kind: str) -> list[Token]:
    """IOB2 tokens of a name; a leading article is no part of it, a possessive is its own token."""
    words = name.replace("'s ", " 's ").replace("s' ", "s ' ").split()
    tokens: list[Token] = []
    if words[0] in ARTICLES:
        tokens.append((words.pop(0), "O"))
    return tokens + [(word, f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]


def cast_name(draw: Draw, kind: str, cast: dict[str, Forms]) -> Forms:
    """A name for a new part of the story, old or new, that looks like no other part's name."""
    taken = {word for other in cast.values() for word in other["full"].split()}
    past = draw.past.setdefault(kind, [])
    for _ in range(50):  # then a shared word, such as the Bank of two banks, must do
        forms = draw.one(past) if past and draw.chance(REUSE) else KINDS[kind][1](draw)
        if not taken & {word for word in forms["full"].split() if word[0].isupper()}:
            break
    if forms not in past:
        past.append(forms)
    return forms


def fill_slot(draw: Draw, slot: str, cast: dict[str, Forms]) -> list[Token]:
    """Tokens of one slot such as ``p2.last``; ``cast`` remembers the names of the story."""
    if slot.startswith("#"):
        low, high = slot[1:].split("-")
        return [(str(draw.number(int(low), int(high))), "O")]
    key, _, form = slot.partition(".")
    kind = key.rstrip("0123456789")
    if kind in WORDS:
        return [(word, "O") for word in draw.one(WORDS[kind]).split()]
    if key not in cast:
        cast[key] = cast_name(draw, kind, cast)
    name = cast[key][form or "full"]
    if form in OUTSIDE:
        return [(word, "O") for word in name.split()]
    return tag_name(name, KINDS[kind][0])


def fill_sentence(draw: Draw, pattern: str, cast: dict[str, Forms]) -> list[Token]:
    tokens: list[Token] = []
    for piece in choose_alternatives(draw, pattern).split():
        match = re.fullmatch(r"([^{]*)\{([^}]+)\}(.*)", piece)
        if match is None:
            tokens.append((piece, "O"))
            continue
        before, slot, after = match.groups()
        filled = fill_slot(draw, slot, cast)
        while "{" in after:  # numbers written together, such as 47.21
            point, more = after.split("{", 1)
            number, after = more.split("}", 1)
            after = point + fill_slot(draw, number, cast)[0][0] + after
        if tokens and tokens[-1][0].lower() in ("the", "a") and filled[0][0] in ARTICLES:
            filled = filled[1:]
        filled[0] = (before + filled[0][0], filled[0][1])
        filled[-1] = (filled[-1][0] + after, filled[-1][1])
        tokens += filled
    return tokens


def set_article(tokens: list[Token]) -> list[Token]:
    """Write "an" for "a" before a vowel."""
    out = list(tokens)
    for i in range(len(out) - 1):
        word = out[i + 1][0].lower()
        if out[i][0] in ("a", "A") and word[0] in "aeiou8" and not re.match(r"uni|one|eu", word):
            out[i] = (out[i][0] + "n", "O")
    return out


def set_capitals(tokens: list[Token], headline: bool) -> list[Token]:
    """A capital at the start, except for brands, which keep their small letter; or all capitals."""
    if headline:
        return [(word.upper(), tag) for word, tag in tokens]
    first, tag = tokens[0]
    if tag != "B-ORG":
        tokens = [(first[0].upper() + first[1:], tag), *tokens[1:]]
    if first == '"' and len(tokens) > 1:
        word, tag = tokens[1]
        tokens = [tokens[0], (word[0].upper() + word[1:], tag), *tokens[2:]]
    return tokens


def make_sentences() -> list[list[Token]]:
    """All sentences: the stories again and again in new orders, then shuffled by sentence."""
    draw = Draw(SEED)
    stories = read_stories(STORIES)
    sentences: list[list[Token]] = []
    while len(sentences) < N_SENTENCES:
        for story in draw.shuffled(stories):
            cast: dict[str, Forms] = {}
            for pattern in story:
                tokens = fill_sentence(draw, pattern.removeprefix("^ "), cast)
                tokens = set_capitals(set_article(tokens), pattern.startswith("^ "))
                if tokens not in sentences:
                    sentences.append(tokens)
    return draw.shuffled(sentences[:N_SENTENCES])


def render(sentences: list[list[Token]]) -> str:
    """The column file: a word and its tag a line, a blank line after each sentence."""
    return "".join(
        "".join(f"{word}\t{tag}\n" for word, tag in sentence) + "\n" for sentence in sentences
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the embedded newswire corpus.")
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    options = parser.parse_args(arguments)
    data = render(make_sentences()).encode("utf-8")
    if options.check:
        same = TARGET.is_file() and TARGET.read_bytes() == data
        print(f"{TARGET.name} {'is up to date' if same else 'differs from its generator'}")
        return 0 if same else 1
    TARGET.write_bytes(data)
    n_tokens = data.count(b"\t")
    print(f"wrote {TARGET.name}: {N_SENTENCES} sentences, {n_tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
