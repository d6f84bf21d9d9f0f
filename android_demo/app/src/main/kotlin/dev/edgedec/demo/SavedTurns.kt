package dev.edgedec.demo

import android.os.Bundle

/** Keeps turns in an activity's state, from which Android restores an app that it killed in the background. */
object SavedTurns {
    // The state of all activities has a megabyte together, of two bytes a character.
    private const val MOST_CHARACTERS = 100_000
    private const val TURNS = "turns"

    fun write(turns: List<Turn>, into: Bundle) {
        var characters = 0
        val kept = turns.takeLastWhile { turn ->
            characters += turn.prompt.length + turn.answer.passage.text.length
            characters <= MOST_CHARACTERS
        }
        into.putParcelableArray(TURNS, kept.map(::bundle).toTypedArray())
    }

    @Suppress("DEPRECATION") // Its successor is of Android 13.
    fun read(from: Bundle): List<Turn> = from.getParcelableArray(TURNS).orEmpty().filterIsInstance<Bundle>().map(::turn)

    private fun bundle(turn: Turn) = Bundle().apply {
        val passage = turn.answer.passage
        putString("prompt", turn.prompt)
        putBoolean("chat", turn.chat)
        putStringArray("texts", passage.pieces.map { it.text }.toTypedArray())
        putBooleanArray("drafted", passage.pieces.map { it.drafted }.toBooleanArray())
        putInt("tokens", passage.tokens)
        putInt("draftedTokens", passage.draftedTokens)
        putString("ending", (turn.answer.ending ?: Ending.BACKGROUND).name)
    }

    private fun turn(bundle: Bundle): Turn {
        val drafted = bundle.getBooleanArray("drafted") ?: BooleanArray(0)
        val pieces = bundle.getStringArray("texts").orEmpty().zip(drafted.asIterable()) { text, mark -> Piece(text, mark) }
        val passage = Passage(pieces, bundle.getInt("tokens"), bundle.getInt("draftedTokens"))
        val ending = Ending.values().firstOrNull { it.name == bundle.getString("ending") }
        return Turn(bundle.getString("prompt").orEmpty(), Answer(passage, ending = ending), bundle.getBoolean("chat"))
    }
}
