package dev.edgedec.core

import kotlin.random.Random

/** Letters for tokens; every third token has half of a letter that the next one completes. */
class FakeStream : TextStream {
    private var held = ""

    override fun push(token: Int): String {
        val text = held + letter(token)
        held = if (token % 3 == 2) text else ""
        return if (held.isEmpty()) text else ""
    }

    override fun flush(): String = held.also { held = "" }

    companion object {
        fun letter(token: Int): Char = 'a' + token % 4

        fun text(tokens: IntArray): String = String(CharArray(tokens.size) { letter(tokens[it]) })
    }
}

/** Drafts what a text really is, and something else in some places. */
class ScriptedDrafter(
    private val text: IntArray,
    override val usesModel: Boolean = false,
    override val name: String = "scripted",
    private val vocabSize: Int = 16,
    private val onDraft: () -> Unit = {},
    private val right: (position: Int) -> Boolean,
) : DraftSource {
    private var history = Tokens()

    override fun begin(sampler: Sampler) {
        history = sampler.history
    }

    override fun propose(length: Int, lengths: Lengths): IntArray {
        val drafted = ArrayList<Int>()
        while (drafted.size < length && history.size + drafted.size < text.size && lengths.goOn(this, drafted.size)) {
            onDraft()
            val position = history.size + drafted.size
            drafted += if (right(position)) text[position] else (text[position] + 1) % vocabSize
        }
        return drafted.toIntArray()
    }
}

/** Any lengths at all. */
class AnyLengths(private val random: Random) : Lengths {
    override val most get() = random.nextInt(7)

    override fun goOn(source: DraftSource, drafted: Int): Boolean = random.nextInt(4) > 0

    override fun catchUp(source: DraftSource, tokens: Int): Boolean = random.nextBoolean()

    override fun prefers(source: DraftSource, other: DraftSource): Boolean = random.nextBoolean()
}

/** The broken twin of [Streams]: noise by the order of the calls. */
class StreamsByCall(seed: Long) : Streams(seed) {
    private var calls = 0

    override fun key(position: Int, purpose: Purpose, index: Long): Long = super.key(calls++, purpose, index)
}

/** The broken twin of [GumbelCoupling]: keeps the first drafted token although the target drew another one. */
internal object KeepsFirst : AcceptanceRule {
    override fun accept(draft: IntArray, pass: Pass, sampler: Sampler): IntArray {
        val tokens = GumbelCoupling.accept(draft, pass, sampler)
        return if (draft.isEmpty()) tokens else tokens.also { it[0] = draft[0] }
    }
}
